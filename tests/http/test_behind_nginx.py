"""A real nginx in front, configured as the page about deploying says."""

import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from http_kit import Peer, Running, post, running, until

PAGE = Path(__file__).parents[2] / "docs" / "deploying.md"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin:/bin")

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


def configuration(folder: Path, port: int) -> str:
    """The page's server at a socket in a folder, in front of a port."""
    found = re.search(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    http = found[1].replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    http = http.replace("listen 8080", f"listen unix:{folder}/socket")
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{paths}{http}}}\n"
    )


@asynccontextmanager
async def behind_nginx(folder: Path) -> AsyncIterator[tuple[Running, Path]]:
    async with running() as server, trio.open_nursery() as nursery:
        (folder / "nginx.conf").write_text(configuration(folder, server.port))
        command = [str(NGINX), "-e", str(folder / "error.log"), "-p", str(folder)]
        command += ["-c", str(folder / "nginx.conf")]
        run = partial(trio.run_process, command, stderr=subprocess.DEVNULL, check=False)
        process = await nursery.start(run)
        try:
            await until((folder / "socket").exists)
            yield server, folder / "socket"
        finally:
            process.terminate()


@asynccontextmanager
async def connect(socket: Path) -> AsyncIterator[Peer]:
    stream = await trio.open_unix_socket(socket)
    async with stream:
        yield Peer(stream)


@pytest.mark.usefixtures("host")
async def test_requests_and_streams_pass_at_once(tmp_path: Path) -> None:
    """Nothing waits in a buffer, and who leaves is noticed."""
    async with behind_nginx(tmp_path) as (server, socket):
        async with connect(socket) as peer:
            for _ in range(3):
                assert (await peer.request(post("tools/list"))).status == 200
            await peer.listen(2)
            for _ in range(3):
                server.handler.publish()
                assert await peer.event()
        await until(lambda: server.handler.cancelled)
        async with connect(socket) as peer:
            await peer.listen(3)
            server.stop.set()
            assert (await peer.event())["id"] == 3
