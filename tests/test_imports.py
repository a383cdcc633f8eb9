"""Imports go one way, from what users call down to the wire; read from the syntax trees."""

import ast
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "mcp_trio"

_WIRE = {"types", "codec", "errors", "protocol", "_backoff", "_causes"}

RULES: dict[str, set[str]] = {
    "types": set(),
    "errors": set(),
    "_backoff": set(),
    "_causes": set(),
    "_stopping": set(),
    "_layout": {"types"},
    "_converter": {"types", "_layout"},
    "codec": {"types", "errors", "_converter"},
    "protocol": {"types", "codec", "errors"},
    "subscriptions": _WIRE,
    "transports": _WIRE,
    "http": _WIRE | {"_stopping", "transports.abc", "transports.lifespan"},
    "server": _WIRE | {"subscriptions", "transports.abc"},
    "client": _WIRE | {"subscriptions", "transports.abc"},
    "cli": _WIRE | {"subscriptions", "client"},
    "workers": {"_stopping", "errors", "transports"},
    "testing": _WIRE | {"subscriptions", "transports", "http", "server", "client"},
    "__main__": {"cli"},
    "__init__": _WIRE | {"subscriptions", "transports", "http", "server", "client", "testing"},
}
"""What each part of the package may import of the others. A part without a rule fails."""

HELPERS = ("open_", "serve_")
"""The functions that tie a server or a client to a transport, and may import one to do so."""

THIRD_PARTY: dict[str, set[str]] = {
    "types": {"attrs"},
    "errors": {"trio"},
    "_backoff": {"attrs"},
    "_causes": set(),
    "_stopping": {"trio"},
    "_layout": {"attrs"},
    "_converter": {"attrs", "cattrs"},
    "codec": {"attrs", "msgspec"},
    "protocol": {"attrs"},
    "subscriptions": {"attrs", "trio"},
    "transports": {"attrs", "trio"},
}
"""What the lower parts may import from outside: in `protocol`, never Trio."""


@attrs.frozen
class Import:
    """One imported module, and where the import stands."""

    path: Path
    line: int
    module: str
    helper: bool

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module}"


EXTRAS: dict[str, set[str]] = {
    "cli/commands.py": {"click"},
    "cli/contents.py": {"rich"},
    "cli/given.py": {"click"},
    "cli/human.py": {"rich"},
    "cli/options.py": {"click"},
    "cli/questions.py": {"rich"},
    "cli/session.py": {"click"},
    "cli/streams.py": {"rich"},
    "cli/tables.py": {"rich"},
    "server/telemetry.py": {"opentelemetry"},
    "subscriptions/redis.py": {"anyio", "coredis"},
}
"""Files that only work with an extra, and what comes with it; nobody else imports that."""


def part_of(path: Path) -> str:
    """The first component below the package: a module's name or a subpackage's."""
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def module_exists(module: str, root: Path) -> bool:
    base = root.joinpath(*module.split("."))
    return base.with_suffix(".py").exists() or base.is_dir()


def imports(path: Path, root: Path) -> Iterator[Import]:
    tree = ast.parse((root / path).read_text(encoding="utf-8"), filename=str(path))
    yield from _walk(tree, path, root, helper=False)


def _walk(node: ast.AST, path: Path, root: Path, *, helper: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        inside = helper or (
            isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            and child.name.startswith(HELPERS)
        )
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(path, child.lineno, alias.name, inside)
        elif isinstance(child, ast.ImportFrom):
            origin = "." * child.level + (child.module or "")
            for alias in child.names:
                full = f"{origin}.{alias.name}"
                submodule = not child.level and module_exists(full, root)
                yield Import(path, child.lineno, full if submodule else origin, inside)
        yield from _walk(child, path, root, helper=inside)


def problem(found: Import) -> str | None:
    """What is wrong with an import; None if nothing is."""
    if found.module.startswith("."):
        return f"{found}: imports are absolute"
    part = part_of(found.path)
    if part not in RULES:
        return f"{found.path}: say in RULES what {part} may import"
    top, _, inner = found.module.partition(".")
    if top != PACKAGE:
        extra = EXTRAS.get(found.path.relative_to(PACKAGE).as_posix(), set())
        if top in ALL_EXTRAS and top not in extra:
            return f"{found}: that comes with an extra"
        allowed = THIRD_PARTY.get(part)
        foreign = top in ALL_THIRD_PARTY
        return f"{found}" if foreign and allowed is not None and top not in allowed else None
    if not inner:
        return f"{found}: the names at the top are for users"
    target = inner.split(".")[0]
    if target == part:
        return None
    permitted = RULES[part]
    if found.helper and part in {"server", "client"}:
        permitted = permitted | {"transports", "http"}
    if target in permitted or any(inner == name for name in permitted):
        return None
    return f"{found}: {part} may import {', '.join(sorted(permitted)) or 'nothing of it'}"


ALL_EXTRAS = set().union(*EXTRAS.values())

ALL_THIRD_PARTY = {"attr", "attrs", "cattrs", "h11", "hypercorn", "msgspec", "trio", "wsproto"}

FILES = sorted(path.relative_to(ROOT) for path in (ROOT / PACKAGE).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_go_one_way(path: Path) -> None:
    """The layers of the design: nothing below knows what is above it."""
    problems = [text for found in imports(path, ROOT) if (text := problem(found))]
    assert problems == []


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("protocol/a.py", "import trio", "trio"),
        ("protocol/a.py", "def f():\n    from trio import sleep", "trio"),
        ("protocol/a.py", "import trio.abc as x", "trio"),
        ("protocol/a.py", "from . import jsonrpc", "absolute"),
        ("protocol/a.py", "from mcp_trio.subscriptions import hub", "protocol may import"),
        (
            "subscriptions/a.py",
            "from mcp_trio.transports.abc import Principal",
            "subscriptions may",
        ),
        ("transports/a.py", "from mcp_trio.server.server import Server", "transports may"),
        ("http/a.py", "from mcp_trio.transports.stdio import x", "http may"),
        ("server/a.py", "from mcp_trio.transports.stdio import serve_stdio", "server may"),
        ("client/a.py", "def connect():\n    import mcp_trio.http.client", "client may"),
        ("client/a.py", "from mcp_trio.server.server import Server", "client may"),
        ("server/a.py", "import mcp_trio", "for users"),
        ("server/a.py", "from mcp_trio import Server", "for users"),
        ("server/a.py", "from mcp_trio import testing", "server may"),
        ("new/a.py", "from mcp_trio import errors", "RULES"),
        ("cli/a.py", "from mcp_trio.transports.stdio import x", "cli may"),
        ("client/a.py", "from mcp_trio.cli import options", "client may"),
        ("client/a.py", "import rich.text", "extra"),
        ("cli/tables.py", "from mcp_trio.client.client import Client\nimport rich", None),
        ("codec.py", "from mcp_trio.protocol import jsonrpc", "codec may"),
        ("protocol/a.py", "from mcp_trio import codec, errors\nimport attrs, json", None),
        ("subscriptions/a.py", "import coredis", "extra"),
        ("server/a.py", "def f():\n    from coredis import Redis", "extra"),
        ("subscriptions/redis.py", "import anyio\nimport coredis", None),
        ("http/a.py", "from mcp_trio.transports import abc", None),
        ("http/a.py", "from mcp_trio.transports.abc import Handler\nimport h11", None),
        ("client/a.py", "async def open_x():\n    import mcp_trio.http.client", None),
        ("server/a.py", "def serve_x():\n    from mcp_trio.transports import stdio", None),
        ("__init__.py", "from mcp_trio.server.server import Server", None),
    ],
)
def test_the_rule_bites(tmp_path: Path, path: str, source: str, complaint: str | None) -> None:
    """The checker itself: what it has to find, and what it has to let pass."""
    for module in ("codec", "errors", "testing", "transports/abc", "transports/stdio"):
        stub = tmp_path / PACKAGE / f"{module}.py"
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.touch()
    file = tmp_path / PACKAGE / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    problems = [problem(found) for found in imports(Path(PACKAGE, path), tmp_path)]
    if complaint is None:
        assert set(problems) == {None}
    else:
        assert any(complaint in (text or "") for text in problems)
