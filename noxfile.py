"""Every check of the project, each in an environment of its own.

``nox`` runs all but the benchmark; ``nox -s bench -- --help`` says what that can do. What a
session is given after ``--`` goes to its tool.
"""

import os
import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests", "docs", "conformance", "interop"]
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_external_run = True

COVERAGE_FLOOR = "95"
CODE = ("mcp_trio", "tests", "examples", "docs", "noxfile.py")


def dependency_group(name: str) -> list[str]:
    """What a group of ``pyproject.toml`` asks for; pip itself reads groups only since 25.1."""
    return list(nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), name))


@nox.session
def lint(session: nox.Session) -> None:
    """Style, and the mistakes that async code invites."""
    session.install(*dependency_group("lint"))
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")
    session.run("flake8", *CODE)


@nox.session
def types(session: nox.Session) -> None:
    """Types, strictly, of the package and of everything around it."""
    session.install("-e", ".[test]", *dependency_group("types"))
    session.run("mypy", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """The tests under coverage, with the processes that they start."""
    session.install("-e", ".[test]")
    for stale in Path().glob(".coverage*"):
        stale.unlink()
    session.run("coverage", "run", "-m", "pytest", *session.posargs)
    if session.posargs:
        return  # part of the suite says nothing about the coverage of the whole
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report", f"--fail-under={COVERAGE_FLOOR}")


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation; a warning is an error."""
    session.install("-e", ".[redis,telemetry]", *dependency_group("docs"))
    shutil.rmtree("docs/_build", ignore_errors=True)
    builder = session.posargs[0] if session.posargs else "html"
    strictly = ["-T", "-E", "-W", "--keep-going", "-n"]
    places = ["-d", "docs/_build/doctrees", "docs", f"docs/_build/{builder}"]
    session.run("python", "-m", "sphinx", *strictly, "-b", builder, *places)


def cache(name: str) -> Path:
    """Where what a session downloads is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / f"mcp-trio-{name}"


@nox.session
def conformance(session: nox.Session) -> None:
    """The official conformance suite; needs npm, and the suite's scripts beside the checkout."""
    scripts = Path("../shared/conformance")
    if not scripts.is_dir():
        session.skip("the scripts that run the suite are not here")
    session.install("-e", ".")
    session.run(
        "python",
        "tests/interop/conformance.py",
        str(scripts),
        *session.posargs,
        f"--cache={cache('conformance')}",
    )


@nox.session
def interop(session: nox.Session) -> None:
    """Our server with the official Python SDK's client, our client with the official servers."""
    session.install("-e", ".")
    where = f"--cache={cache('interop')}"
    session.run("python", "tests/interop/python_sdk.py", where)
    session.run("python", "tests/interop/our_client.py", where)


@nox.session
def bench(session: nox.Session) -> None:
    """What it costs, beside floors and official SDKs; takes minutes and a quiet machine."""
    session.install("-e", ".[test]")
    where = f"--cache={cache('bench')}"
    if session.posargs:
        session.run("python", "tests/bench/run.py", where, *session.posargs)
        return
    session.run("python", "tests/bench/typed_calls.py")
    session.run("python", "tests/bench/listens.py", where)
    session.run("python", "tests/bench/run.py", where)
