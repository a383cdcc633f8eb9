"""`watch_folder.py` on real folders, with the system's own change notices."""

import base64
import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import pytest
import trio

from mcp_trio import (
    Client,
    ResourcesListChanged,
    ResourceUpdated,
    Subscription,
    SubscriptionFilter,
    errors,
    open_memory_client,
    types,
)

Load = Callable[[str], ModuleType]


@pytest.fixture
def example(load_example: Load) -> ModuleType:
    return load_example("watch_folder")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    served = tmp_path / "served"
    served.mkdir()
    return served


@asynccontextmanager
async def watched(
    example: ModuleType, folder: Path, *uris: str
) -> AsyncIterator[tuple[Client, Subscription]]:
    """A client of a server that watches the folder, following the list and the URIs."""
    serving = example.WatchedFolder(folder)
    wanted = SubscriptionFilter(resources_list_changed=True, resource_subscriptions=uris)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(serving.run)
            async with (
                open_memory_client(serving.server) as client,
                client.listen(wanted) as changes,
            ):
                yield client, changes
            nursery.cancel_scope.cancel()


async def wait_for(changes: Subscription, *events: object) -> None:
    """Take changes until each of the events has been among them."""
    missing = set(events)
    async for change in changes:
        missing.discard(change)
        if not missing:
            return
    raise AssertionError(f"the stream ended before {missing}")


async def names(client: Client) -> list[str]:
    return [resource.name for resource in await client.all_resources()]


async def read(client: Client, uri: str) -> types.TextResourceContents | types.BlobResourceContents:
    (contents,) = (await client.read_resource(uri)).contents
    return contents


async def test_files_appear_change_and_vanish(example: ModuleType, folder: Path) -> None:
    """Each kind of change is an event, and the list and the reads follow it."""
    note = folder / "note.txt"
    async with watched(example, folder, note.as_uri()) as (client, changes):
        assert await names(client) == []
        note.write_text("one")
        await wait_for(changes, ResourcesListChanged(), ResourceUpdated(note.as_uri()))
        assert await names(client) == ["note.txt"]
        note.write_text("two")
        await wait_for(changes, ResourceUpdated(note.as_uri()))
        contents = await read(client, note.as_uri())
        assert isinstance(contents, types.TextResourceContents)
        assert (contents.text, contents.mime_type) == ("two", "text/plain")
        note.unlink()
        await wait_for(changes, ResourcesListChanged(), ResourceUpdated(note.as_uri()))
        assert await names(client) == []
        with pytest.raises(errors.InvalidParams, match="not found") as caught:
            await client.read_resource(note.as_uri())
        assert caught.value.data == {"uri": note.as_uri()}


async def test_a_rename_is_one_file_less_and_one_more(example: ModuleType, folder: Path) -> None:
    """Both names are announced: the old one cannot be read any more, the new one can."""
    old, new = folder / "old.txt", folder / "deep" / "new.txt"
    old.write_text("kept")
    new.parent.mkdir()
    async with watched(example, folder, old.as_uri(), new.as_uri()) as (client, changes):
        old.rename(new)
        await wait_for(
            changes,
            ResourcesListChanged(),
            ResourceUpdated(old.as_uri()),
            ResourceUpdated(new.as_uri()),
        )
        assert await names(client) == ["deep/new.txt"]


def replace_at_once(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def replace_after_a_while(folder: Path) -> None:
    shutil.rmtree(folder)
    time.sleep(0.3)
    folder.mkdir()


def replace_by_another(folder: Path) -> None:
    old = folder.with_name("old")
    shutil.rmtree(old, ignore_errors=True)
    folder.rename(old)
    folder.mkdir()


async def wait_for_text(client: Client, changes: Subscription, uri: str, text: str | None) -> None:
    """Read after each change until the text is there; None for a file that is not."""
    while True:
        found = None
        with contextlib.suppress(errors.InvalidParams):
            contents = await read(client, uri)
            assert isinstance(contents, types.TextResourceContents)
            found = contents.text
        if found == text:
            return
        await changes.receive()


@pytest.mark.parametrize("replace", [replace_at_once, replace_after_a_while, replace_by_another])
async def test_a_folder_that_is_deleted_and_made_again(
    example: ModuleType, folder: Path, replace: Callable[[Path], None]
) -> None:
    """What is at the place is served, however often it becomes another folder."""
    note = folder / "note.txt"
    async with watched(example, folder, note.as_uri()) as (client, changes):
        for text in ("one", "two", "three"):
            note.write_text(text)
            await wait_for_text(client, changes, note.as_uri(), text)
            await trio.to_thread.run_sync(replace, folder)
            await wait_for_text(client, changes, note.as_uri(), None)
        note.write_text("four")
        await wait_for_text(client, changes, note.as_uri(), "four")
        note.write_text("five")
        await wait_for_text(client, changes, note.as_uri(), "five")


async def test_binary_files_are_blobs(example: ModuleType, folder: Path) -> None:
    """What is not UTF-8, or holds a NUL, travels as Base64 and comes back the same."""
    for number, data in enumerate([b"\x89PNG\r\n\xff", b"nul \0 inside", "ünïcode\n".encode()]):
        (folder / f"{number}.bin").write_bytes(data)
    async with watched(example, folder) as (client, _):
        blobs = [await read(client, (folder / f"{n}.bin").as_uri()) for n in range(3)]
    assert isinstance(blobs[0], types.BlobResourceContents)
    assert base64.b64decode(blobs[0].blob) == b"\x89PNG\r\n\xff"
    assert isinstance(blobs[1], types.BlobResourceContents)
    assert isinstance(blobs[2], types.TextResourceContents)
    assert blobs[2].text == "ünïcode\n"


async def test_names_that_need_percent_encoding(example: ModuleType, folder: Path) -> None:
    """W38: the URI of the list is the URI of the read and of the event, byte for byte."""
    odd = [folder / "a b%20c#?.txt", folder / "日本\u2028.txt", Path(os.fsdecode(b"\xff\xfe"))]
    odd[2] = folder / odd[2]
    for path in odd:
        path.write_text("here")
    uris = [path.as_uri() for path in odd]
    async with watched(example, folder, *uris) as (client, changes):
        listed = [resource.uri for resource in await client.all_resources()]
        assert sorted(listed) == sorted(uris)
        for path in odd:
            path.write_text("there")
        await wait_for(changes, *map(ResourceUpdated, uris))
        for uri in uris:
            contents = await read(client, uri)
            assert isinstance(contents, types.TextResourceContents)
            assert contents.text == "there"


async def test_nothing_outside_the_folder_is_served(
    example: ModuleType, folder: Path, tmp_path: Path
) -> None:
    """Links that lead out, links to nowhere, pipes, and names with dots are refused."""
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (folder / "out.txt").symlink_to(secret)
    (folder / "nowhere.txt").symlink_to(folder / "missing")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "parent").symlink_to(tmp_path)
    (folder / "in.txt").write_text("inside")
    (folder / "also-in.txt").symlink_to(folder / "in.txt")
    os.mkfifo(folder / "pipe")
    async with watched(example, folder) as (client, _):
        assert await names(client) == ["also-in.txt", "in.txt"]
        refused = [folder / "out.txt", folder / "parent" / "secret.txt", folder / "pipe", secret]
        tricks = [f"{folder.as_uri()}/../secret.txt", f"{folder.as_uri()}/%2e%2e/secret.txt"]
        for uri in [path.as_uri() for path in refused] + tricks:
            with pytest.raises(errors.InvalidParams, match="not found"):
                await client.read_resource(uri)


async def test_a_file_swapped_for_a_link_while_it_is_listed(
    example: ModuleType, folder: Path, tmp_path: Path
) -> None:
    """The check of the listing is made again at the read."""
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    note = folder / "note.txt"
    note.symlink_to(secret)
    with pytest.raises(errors.InvalidParams, match="not found"):
        example.read_file(folder, note, note.as_uri())
    note.unlink()
    os.mkfifo(note)
    with pytest.raises(errors.InvalidParams, match="not found"):
        example.read_file(folder, note, note.as_uri())


def test_unreadable_and_too_large(
    example: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What exists but cannot be sent is an internal error that says why; nothing is cut off."""
    large = folder / "large.txt"
    large.write_text("x" * 11)
    monkeypatch.setattr(example, "MAX_FILE_BYTES", 10)
    with pytest.raises(errors.InternalError, match="larger than 10 bytes"):
        example.read_file(folder, large, large.as_uri())

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(errors.InternalError, match="Permission denied"):
        example.read_file(folder, large, large.as_uri())


async def test_a_burst_of_ten_thousand_changes(example: ModuleType, folder: Path) -> None:
    """P-13: nothing is missed, and ten thousand new files are few announcements of the list."""
    last = folder / "d9" / "999.txt"
    async with watched(example, folder, last.as_uri()) as (client, changes):
        for directory in range(10):
            (folder / f"d{directory}").mkdir()
            for number in range(1000):
                (folder / f"d{directory}" / f"{number}.txt").touch()
        await wait_for(changes, ResourceUpdated(last.as_uri()))
        events = 0
        while len(await client.all_resources()) < 10_000:
            assert await changes.receive() in {
                ResourcesListChanged(),
                ResourceUpdated(last.as_uri()),
            }
            events += 1
        assert events < 1000
        shutil.rmtree(folder / "d9")
        await wait_for(changes, ResourcesListChanged(), ResourceUpdated(last.as_uri()))
        while len(await client.all_resources()) > 9_000:
            await changes.receive()
