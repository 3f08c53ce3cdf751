"""strace on a program that runs: what it asks of the disk, and a disk that fails it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.mesh.restarts.program import END_SECONDS
from tests.mesh.settlement.forked import until

ATTACH_SECONDS = 20.0
SYNCS = "fsync,fdatasync"


def strace() -> str:
    """The command. Skips where there is none, or it may not trace."""
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is not installed")
    if subprocess.run([found, "-qq", "-o", "/dev/null", "true"], capture_output=True).returncode:
        pytest.skip("strace is installed, and may not trace here")
    return found


@asynccontextmanager
async def traced(pid: int, into: Path, *expressions: str) -> AsyncIterator[None]:
    """A program's calls go into a file while the context lasts, if it lasts so long."""
    wanted = [word for expression in expressions for word in ("-e", expression)]
    argv = [strace(), "-f", "-y", "-s", "64", "-o", str(into), *wanted, "-p", str(pid)]
    start = partial(
        subprocess.Popen[bytes], argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    process = await trio.to_thread.run_sync(start)
    try:
        if not await until(lambda: _is_traced(pid), ATTACH_SECONDS):
            pytest.skip("strace is installed, and may not attach to a process here")
        yield
    finally:
        process.terminate()
        await trio.to_thread.run_sync(process.wait, END_SECONDS)


def _is_traced(pid: int) -> bool:
    statuses = [task / "status" for task in Path(f"/proc/{pid}/task").iterdir()]
    return all("TracerPid:\t0\n" not in status.read_text() for status in statuses)
