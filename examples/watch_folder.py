"""Serve a real folder: each file a resource, each change an event.

    python examples/watch_folder.py FOLDER                             # over stdio
    python examples/watch_folder.py FOLDER --http 127.0.0.1:8000       # over HTTP, at /mcp
    python examples/watch_folder.py FOLDER --hypercorn 127.0.0.1:8000  # the same on Hypercorn

The operating system's change notices come through `watchfiles`, in a thread of its own. They are
taken as a cue to look, not as the truth: the thread lists the folder again and hands the listing
to the Trio thread, which compares it with what it serves. So a notice that the system merged or
dropped costs nothing, and ten thousand changes at once are one comparison.
"""

import argparse
import base64
import mimetypes
import os
import stat
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import attrs
import trio
import watchfiles
from hypercorn.config import Config
from watchfiles._rust_notify import WatchfilesRustInternalError

from mcp_trio import Hub, ResourceUpdated, Server, serve_http, serve_hypercorn, serve_stdio
from mcp_trio.errors import InternalError, InvalidParams
from mcp_trio.types import BlobResourceContents, TextResourceContents

MAX_FILE_BYTES = 16 * 2**20
"""A larger file is listed, but not sent."""

Contents = TextResourceContents | BlobResourceContents


@attrs.frozen
class Stamp:
    """What tells one state of a file from the next without reading it."""

    inode: int
    size: int
    mtime_ns: int


def scan(root: Path) -> dict[str, tuple[Path, Stamp]]:
    """List the regular files below the root by URI, leaving out what leads out of it."""
    found = {}
    for path in _walk(root):
        try:
            status = path.stat()
            inside = not path.is_symlink() or path.resolve(strict=True).is_relative_to(root)
        except OSError:
            continue  # vanished, or a link to nowhere
        if inside and stat.S_ISREG(status.st_mode):
            stamp = Stamp(status.st_ino, status.st_size, status.st_mtime_ns)
            # as_uri() percent-encodes the bytes of the name, whatever they are.
            found[path.as_uri()] = (path, stamp)
    return found


def identity(root: Path) -> tuple[int, int] | None:
    """What tells the folder from another one at the same place; None if there is none."""
    try:
        status = root.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _walk(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):  # does not follow links, passes over the unreadable
        for name in sorted(names):
            yield Path(folder, name)


def read_file(root: Path, path: Path, uri: str) -> Contents:
    """Read one file, in a thread, as text where it is text."""
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(root):
            raise InvalidParams("Resource not found", data={"uri": uri})
        # Between the listing and now the name may have become a link or a pipe.
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:  # noqa: PTH123 -- a descriptor has no path
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise InvalidParams("Resource not found", data={"uri": uri})
            data = file.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InvalidParams("Resource not found", data={"uri": uri}) from error
    except OSError as error:
        raise InternalError(f"cannot be read: {error.strerror}", data={"uri": uri}) from error
    if len(data) > MAX_FILE_BYTES:
        raise InternalError(f"larger than {MAX_FILE_BYTES} bytes", data={"uri": uri})
    mime_type = mimetypes.guess_type(path.name)[0]
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text:
        return TextResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=text)
    return BlobResourceContents(
        uri=uri,
        mime_type=mime_type or "application/octet-stream",
        blob=base64.b64encode(data).decode("ascii"),
    )


class WatchedFolder:
    """A folder and the server that offers it."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve(strict=True)
        # There will never be tools or prompts, so nobody is promised news of them.
        self.hub = Hub(kinds={"resources", "updated"})
        self.server = Server("watch-folder", version="1.0", hub=self.hub)
        self._served: dict[str, Stamp] = {}

    async def run(  # noqa: ASYNC114, ASYNC128 - it is the thread that says it has started
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Watch until cancelled. Started once the files that are there already are served."""
        stopped = threading.Event()
        try:
            await trio.to_thread.run_sync(self._watch, stopped, task_status, abandon_on_cancel=True)
        finally:
            stopped.set()

    def _watch(self, stopped: threading.Event, task_status: trio.TaskStatus[None]) -> None:
        """Hand over one listing at the start, and one after each report; in a thread."""
        first = True
        try:
            while not stopped.is_set():
                for touched in self._reports(stopped):
                    # This thread may not touch Trio's objects. It hands over and waits, so that
                    # no queue can grow between the two.
                    trio.from_thread.run_sync(self._apply, scan(self.root), touched)
                    if first:
                        trio.from_thread.run_sync(task_status.started)
                        first = False
        except (trio.Cancelled, trio.RunFinishedError):  # noqa: ASYNC103 -- a thread, not a task
            return  # noqa: ASYNC104

    def _reports(self, stopped: threading.Event) -> Iterator[set[str]]:
        """The URIs of each report; the first, empty, as soon as the system is watching.

        So nothing can change unnoticed between the first listing and the first notice. It ends
        when it can no longer be relied on; then it is to be begun again.
        """
        watched = identity(self.root)
        if watched is None:
            yield set()  # for a last look: nothing is there
            while identity(self.root) is None and not stopped.wait(0.05):
                pass
            return
        reports = watchfiles.watch(
            self.root,
            watch_filter=None,
            debounce=200,
            step=20,
            rust_timeout=50,
            yield_on_timeout=True,
            stop_event=stopped,
            raise_interrupt=False,
        )
        first = True
        try:
            for report in reports:
                if report or first:
                    yield {Path(name).as_uri() for _, name in report}
                first = False
                # The system watches a folder, not its name. There may be another one by now.
                deleted = (watchfiles.Change.deleted, str(self.root)) in report
                if deleted or identity(self.root) != watched:
                    return
        except FileNotFoundError:
            return  # gone again before it could be watched
        except WatchfilesRustInternalError:
            # It cannot express a name that is not UTF-8 and gives up. Begin again: the listing
            # that follows has what this report would have had.
            return

    def _apply(self, listing: dict[str, tuple[Path, Stamp]], touched: set[str]) -> None:
        before = self._served
        after = {uri: stamp for uri, (_, stamp) in listing.items()}
        with self.server.batch():  # one announcement of the list, however much it changed
            for uri in before.keys() - after.keys():
                self.server.remove_resource(uri)
            for uri in sorted(after.keys() - before.keys()):
                path, _ = listing[uri]
                self.server.add_resource(
                    uri,
                    partial(self._read, path, uri),
                    name=os.fsencode(path.relative_to(self.root)).decode(errors="replace"),
                    mime_type=mimetypes.guess_type(path.name)[0],
                )
        self._served = after
        for uri in before.keys() | after.keys():
            # A write that left size and time as they were is known from the notice alone.
            if uri in touched or before.get(uri) != after.get(uri):
                self.hub.publish(ResourceUpdated(uri))

    async def _read(self, path: Path, uri: str) -> Contents:
        return await trio.to_thread.run_sync(
            read_file, self.root, path, uri, abandon_on_cancel=True
        )


async def main(folder: Path, http: str | None, hypercorn: str | None) -> None:
    """Serve the folder over stdio, or over HTTP where an address to bind is given."""
    watched = WatchedFolder(folder)
    async with trio.open_nursery() as nursery:
        await nursery.start(watched.run)
        if http is not None:
            host, _, port = http.rpartition(":")
            await serve(partial(serve_http, watched.server, host.strip("[]"), int(port)))
        elif hypercorn is not None:
            config = Config()
            config.bind = [hypercorn]
            await serve(partial(serve_hypercorn, watched.server, config))
        else:
            await serve_stdio(watched.server)
        nursery.cancel_scope.cancel()  # nothing is served any more, so nothing is watched


async def serve(over: Callable[..., Awaitable[None]]) -> None:
    """Serve until SIGTERM or SIGINT, and say where on standard error."""
    async with trio.open_nursery() as nursery:
        for url in await nursery.start(partial(over, handle_signals=True)):
            print(f"serving {url}/mcp", file=sys.stderr, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--http", metavar="HOST:PORT")
    how.add_argument("--hypercorn", metavar="HOST:PORT")
    arguments = parser.parse_args()
    trio.run(main, arguments.folder, arguments.http, arguments.hypercorn)
