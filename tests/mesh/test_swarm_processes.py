"""A mesh of processes and no musivum: what dies and comes back finds the others again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tessella.engine.toy import toy_shape, write_toy

pytestmark = [pytest.mark.mesh, pytest.mark.timeout(180)]

LISTEN = "/ip4/127.0.0.1/tcp/0"
START_SECONDS = 60.0
END_SECONDS = 15.0
PROGRAMS = {"tessella": "tessella.cli.main", "tessella-worker": "tessella.cli.worker"}


class Swarm:
    """Processes by name; each keeps its key and its peers between its lives."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._toy = directory / "toy"
        write_toy(self._toy, shape=toy_shape(layers=6))
        self._running: dict[str, subprocess.Popen[str]] = {}

    def bootstrap(self) -> str:
        """Start a bootstrap peer; its address."""
        args = ["serve", "--bootstrap-only", "--p2p", "127.0.0.1:0", "--json"]
        self._start("bootstrap", "musivum.cli", *args, "--data", self._home("bootstrap"))
        return self._ready("bootstrap")

    def workers(self, *ranges: str, bootstrap: str) -> list[str]:
        """Start nodes of these layers side by side; their addresses."""
        for layers in ranges:
            self._start_worker(layers, bootstrap)
        return [self._ready(layers) for layers in ranges]

    def _start_worker(self, layers: str, bootstrap: str) -> None:
        home = self._home(layers)
        found = ["--bootstrap", bootstrap] if bootstrap else []
        self._start(
            layers,
            PROGRAMS["tessella-worker"],
            "--kademlia",
            *found,
            *("--layers", layers, "--listen", LISTEN, "--key", f"{home}/node.key", "--json"),
            *("--model", "toy", "--weights", str(self._toy), "--claim-mb", "64", "--no-api"),
            *("--context", "128", "--device", "cpu"),
        )

    def chat(self, bootstrap: str) -> dict[str, Any]:
        """One answer, found through any peer of the swarm."""
        args = ["chat", "hello", "--bootstrap", bootstrap, "--max-tokens", "6", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", PROGRAMS["tessella"], *args],
            env=self._environment("client"),
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def end(self, name: str, number: int = signal.SIGTERM) -> None:
        """End a process, and wait for it."""
        process = self._running.pop(name)
        process.send_signal(number)
        try:
            process.wait(END_SECONDS)
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def close(self) -> None:
        """Leave nothing behind."""
        for name in list(self._running):
            with suppress(subprocess.TimeoutExpired):
                self.end(name, signal.SIGKILL)

    def _home(self, name: str) -> str:
        home = self._directory / name.replace(":", "-")
        home.mkdir(exist_ok=True)
        return str(home)

    def _environment(self, name: str) -> dict[str, str]:
        return {**os.environ, "TESSELLA_HOME": self._home(name), "OMP_NUM_THREADS": "1"}

    def _start(self, name: str, module: str, *args: str) -> None:
        self._running[name] = subprocess.Popen(
            [sys.executable, "-m", module, *args],
            env=self._environment(name),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ready(self, name: str) -> str:
        """Where a process is reached that was started; waits until it is ready."""
        process = self._running[name]
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "ready":
                return str(event["addrs"][0])
        raise AssertionError(f"{name} ended before it was ready: {process.wait()}")


@pytest.fixture
def swarm(tmp_path: Path) -> Iterator[Swarm]:
    processes = Swarm(tmp_path)
    try:
        yield processes
    finally:
        processes.close()


def ranges(answer: dict[str, Any]) -> list[list[int]]:
    return [stage["layer_range"] for stage in answer["chain"]]


def test_nodes_answer_without_a_musivum_and_outlive_their_bootstrap(swarm: Swarm) -> None:
    bootstrap = swarm.bootstrap()
    first, *_ = swarm.workers("0:2", "2:4", "4:6", bootstrap=bootstrap)
    answer = swarm.chat(bootstrap)
    assert ranges(answer) == [[0, 2], [2, 4], [4, 6]]

    swarm.end("bootstrap", signal.SIGKILL)
    again = swarm.chat(first)
    assert again["text"] == answer["text"]
    assert ranges(again) == ranges(answer)


def test_nodes_that_all_start_again_but_one_find_each_other_by_their_snapshots(
    swarm: Swarm,
) -> None:
    bootstrap = swarm.bootstrap()
    first, _ = swarm.workers("0:3", "3:6", bootstrap=bootstrap)
    answer = swarm.chat(bootstrap)

    swarm.end("bootstrap", signal.SIGKILL)
    swarm.end("3:6")
    swarm.workers("3:6", bootstrap="")  # it knows nobody but those it wrote down
    again = swarm.chat(first)
    assert again["text"] == answer["text"]
    assert ranges(again) == [[0, 3], [3, 6]]
