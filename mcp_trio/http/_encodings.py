"""Bodies that come compressed, which was not asked for: taken apart piece by piece.

Source: RFC 9110, section 8.4.1.
"""

import zlib
from collections import deque
from typing import Final

from mcp_trio import errors

__all__ = ["BodyDecoder"]

_PIECE: Final = 64 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS
_ZLIB: Final = zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS


class BodyDecoder:
    """Decodes the body of one answer.

    What has arrived is decoded when it is asked for, in pieces of 64 KiB: however small the body
    that becomes something enormous, no more than one piece of that is held at a time.

    Args:
        encoding: the value of `Content-Encoding`.
        peer: for messages.

    Raises:
        errors.RemoteProtocolError: nothing is known of such an encoding.
    """

    def __init__(self, encoding: str, peer: str) -> None:
        self._name = encoding.lower()
        self._peer = peer
        self._arrived: deque[bytes] = deque()
        self._inflater: zlib._Decompress | None = None
        if self._name not in {"gzip", "x-gzip", "deflate"}:
            raise errors.RemoteProtocolError(
                f"{peer} answers with Content-Encoding {self._name[:60]!r}, which was not asked for"
            )

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body."""
        if data:
            self._arrived.append(data)

    def piece(self) -> bytes:
        """The next piece of what they stand for; empty if more of them are needed.

        Raises:
            errors.RemoteProtocolError: they are not what they are said to be.
        """
        while self._arrived:
            data = self._arrived.popleft()
            if self._inflater is None:
                self._inflater = zlib.decompressobj(self._window(data))
            try:
                found = self._inflater.decompress(data, _PIECE)
            except zlib.error as problem:
                raise self._broken(str(problem)) from problem
            if self._inflater.unused_data:
                raise self._broken("there is more behind its end")
            rest = self._inflater.unconsumed_tail
            if rest or len(found) == _PIECE:
                self._arrived.appendleft(rest)  # there may be more without another byte
            if found:
                return found
        return b""

    def end(self) -> None:
        """The body has ended, and all its pieces have been taken.

        Raises:
            errors.RemoteProtocolError: what is compressed is not complete.
        """
        if self._inflater is not None and not self._inflater.eof:
            raise self._broken("it is cut off")

    def _window(self, data: bytes) -> int:
        if self._name != "deflate":
            return _GZIP
        # Some servers send it without the header it should have.
        return _ZLIB if data[0] & 0x0F == zlib.DEFLATED else _RAW

    def _broken(self, why: str) -> errors.RemoteProtocolError:
        return errors.RemoteProtocolError(
            f"{self._peer} answers with a body that is not {self._name}: {why}"
        )
