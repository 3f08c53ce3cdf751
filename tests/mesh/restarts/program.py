"""Programs that are killed and started again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

BEAT = 1.0
START_SECONDS = 60.0
END_SECONDS = 10.0
LOOK_SECONDS = 0.02


@dataclass
class Program:
    """A program in its own process, that tells its life in JSON lines. It may live many times."""

    module: str
    args: tuple[str, ...]
    home: Path
    lives: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Live; ended with us, however we end."""
        self.lives += 1
        self.home.mkdir(parents=True, exist_ok=True)
        outside = ("MUSIVUM_", "TESSELLA_")
        env = {key: value for key, value in os.environ.items() if not key.startswith(outside)}
        env |= {"TESSELLA_HOME": str(self.home), "OMP_NUM_THREADS": "1"}
        env["MUSIVUM_HEARTBEAT_SECONDS"] = str(BEAT)
        argv = [sys.executable, "-m", self.module, *self.args, "--json", "--until-stdin-closes"]
        with self._file("out").open("wb") as out, self._file("err").open("wb") as err:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=out, stderr=err, env=env
            )

    def _file(self, kind: str) -> Path:
        return self.home / f"life-{self.lives}.{kind}"

    @property
    def status(self) -> int | None:
        """The exit status of this life; None while it lives."""
        assert self.process is not None
        return self.process.poll()

    @property
    def is_running(self) -> bool:
        """Whether it lives."""
        return self.process is not None and self.process.poll() is None

    @property
    def errors(self) -> str:
        """What it wrote to stderr in this life."""
        return self._file("err").read_text(errors="replace")

    def events(self) -> list[dict[str, Any]]:
        """What it told in this life."""
        *whole, _ = self._file("out").read_text().split("\n")
        return [json.loads(line) for line in whole]

    async def restart(self) -> float:
        """Live again; seconds until it is ready."""
        began = trio.current_time()
        self.start()
        await self.told("ready")
        return trio.current_time() - began

    async def told(self, event: str) -> dict[str, Any]:
        """The first event of a kind, waited for."""
        with trio.fail_after(START_SECONDS):
            while True:
                status = self.status
                for each in self.events():
                    if each["event"] == event:
                        return each
                assert status is None, f"{self.args}: ended with {status}: {self.errors}"
                await trio.sleep(LOOK_SECONDS)

    async def ended(self) -> int:
        """The status it ends with, waited for."""
        with trio.fail_after(START_SECONDS):
            while self.status is None:  # noqa: ASYNC110 - no event tells of its end
                await trio.sleep(LOOK_SECONDS)
        return self.end()

    def end(self) -> int:
        """SIGKILL, if it lives; its exit status."""
        assert self.process is not None
        self.process.kill()
        status = self.process.wait(END_SECONDS)
        if self.process.stdin is not None:
            self.process.stdin.close()
        return status
