"""Reading HTTP by hand: what several kits and tests do with the bytes of a connection."""

import trio


class ByteReader:
    """One end of a connection, read to a mark, by count or by chunk.

    Attributes:
        stream: what is read.
        buffer: what has been read and not been asked for.
    """

    def __init__(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> None:
        self.stream = stream
        self.buffer = b""

    async def more(self) -> None:
        """Read what there is.

        Raises:
            EOFError: the connection has ended, or broken.
        """
        try:
            data = await self.stream.receive_some(65536)
        except trio.BrokenResourceError as problem:
            raise EOFError(self.buffer[:200]) from problem
        if not data:
            raise EOFError(self.buffer[:200])
        self.buffer += data

    async def read_until(self, mark: bytes) -> bytes:
        """Read up to a mark, which is passed over."""
        while mark not in self.buffer:
            await self.more()
        data, _, self.buffer = self.buffer.partition(mark)
        return data

    async def read_exactly(self, count: int) -> bytes:
        """Read so many bytes."""
        while len(self.buffer) < count:
            await self.more()
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    async def read_head(self) -> tuple[str, list[tuple[str, str]]]:
        """Read the head of a message: its first line, and its headers, in lower case."""
        first, *lines = (await self.read_until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return first, [(name.lower(), value.strip()) for name, _, value in pairs]

    async def read_chunk(self) -> bytes:
        """Read one chunk of a body; empty at its end."""
        data = await self.read_exactly(int(await self.read_until(b"\r\n"), 16) + 2)
        assert data.endswith(b"\r\n"), data
        return data[:-2]
