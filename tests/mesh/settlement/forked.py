"""The other side of `forking`: programs as a test starts and ends them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import trio

from tests.mesh.restarts.program import BEAT, END_SECONDS, LOOK_SECONDS, Program
from tests.mesh.settlement.forking import Birth, line_of

FORKER = "tests.mesh.settlement.forking"
ROOT = Path(__file__).parents[3]
# Until all is imported.
IMPORT_SECONDS = 60.0


@dataclass
class Forker:
    """The process that has imported everything."""

    births: IO[bytes]
    deaths: Path

    def facts(self) -> list[dict[str, Any]]:
        """What it told so far."""
        *whole, _ = self.deaths.read_text().split("\n")
        return [json.loads(line) for line in whole]

    def fact(self, name: str, key: str) -> int | None:
        """The pid or the status of a life; None where it has none yet."""
        found = [int(each[key]) for each in self.facts() if each["name"] == name and key in each]
        return found[0] if found else None


@dataclass
class Life:
    """One life, with what Program asks of a process."""

    forker: Forker
    name: str
    pid: int
    stdin: None = None

    def poll(self) -> int | None:
        """Its status; None while it lives."""
        return self.forker.fact(self.name, "status")

    def kill(self) -> None:
        """SIGKILL, if it lives: it may have ended, and its status not be told yet."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """Its status, waited for."""
        return _waited(self.forker, self.name, "status", timeout)


def _waited(forker: Forker, name: str, key: str, timeout: float) -> int:
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        if (found := forker.fact(name, key)) is not None:
            return found
        time.sleep(LOOK_SECONDS)
    raise TimeoutError(f"{name} has no {key} after {timeout:g} s")


@dataclass
class Forked(Program):
    """A program whose every life is forked."""

    forker: Forker | None = None
    has_traps: bool = True
    """Whether a Trap in its home is looked for; without, it is the program as it is."""

    def start(self) -> None:
        """Live; ended with us, however we end."""
        assert self.forker is not None
        self.lives += 1
        self.home.mkdir(parents=True, exist_ok=True)
        name = f"{self.home.name}.{self.lives}"
        out, err = (str(self._file(kind)) for kind in ("out", "err"))
        args = [*self.args, "--json", "--until-stdin-closes"]
        birth = Birth(name, self.module, args, str(self.home), out, err, self.has_traps)
        self.forker.births.write(line_of(birth))
        self.forker.births.flush()
        pid = _waited(self.forker, name, "pid", IMPORT_SECONDS)
        self.process = cast("subprocess.Popen[bytes]", Life(self.forker, name, pid))


async def until(is_true: Callable[[], bool], seconds: float) -> bool:
    """Whether something came true that is seen from outside: in a file, or of a process."""
    with trio.move_on_after(seconds):
        while not is_true():  # noqa: ASYNC110 - no event tells of it
            await trio.sleep(LOOK_SECONDS)
        return True
    return is_true()


@contextmanager
def open_forker(directory: Path) -> Iterator[Forker]:
    """One that forks until the context is left; what it forked ends with it."""
    outside = ("MUSIVUM_", "TESSELLA_")
    env = {key: value for key, value in os.environ.items() if not key.startswith(outside)}
    env |= {"OMP_NUM_THREADS": "1", "MUSIVUM_HEARTBEAT_SECONDS": str(BEAT)}
    deaths = directory / "deaths"
    with deaths.open("wb") as out, (directory / "forker.err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", FORKER],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            env=env,
            cwd=ROOT,
        )
    assert process.stdin is not None
    try:
        yield Forker(process.stdin, deaths)
    finally:
        process.stdin.close()
        process.wait(END_SECONDS)
