"""`tessella up` as a user runs it: real processes, real libp2p, a model of random weights."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tessella.cli.mesh import state_directory

pytestmark = [pytest.mark.mesh, pytest.mark.usefixtures("home")]

# One that something happens to, and one beside it: each takes seconds to start.
WORKERS = 2
START_BOUND = 100.0
END_BOUND = 15.0


def command(toy: Path, state: Path, *args: str) -> list[str]:
    up = [sys.executable, "-m", "tessella.cli.main", "up", "--model", str(toy)]
    return [*up, "--dir", str(state), "--context", "1024", *args]


def processes_of(state: Path) -> list[int]:
    """Whatever runs with this state directory in its command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(state).encode() in line:
                found.append(int(entry.name))
    return found


def wait_until(true: Callable[[], bool], bound: float) -> None:
    end = time.monotonic() + bound
    while not true():
        assert time.monotonic() < end, f"not true within {bound} s"
        time.sleep(0.05)


class Terminal:
    """A terminal with `tessella up` at it."""

    def __init__(self, toy: Path, state: Path, workers: int) -> None:
        self.ours, theirs = os.openpty()
        self.seen = b""
        args = ("--max-tokens", "8", "--seed", "0", "--workers", str(workers))
        argv = command(toy, state, *args)
        self.process = subprocess.Popen(
            argv,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            # Ctrl-C reaches the processes of a terminal only once it is theirs.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)

    def type(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def wait_for(self, text: bytes, bound: float = START_BOUND) -> None:
        """Read until the text is there, and forget everything up to it."""
        end = time.monotonic() + bound
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} not within {bound} s, but {self.seen!r}"
            if select.select([self.ours], [], [], 0.1)[0]:
                self.seen += os.read(self.ours, 65536)
        self.seen = self.seen.partition(text)[2]


@contextmanager
def at_terminal(toy: Path, state: Path, workers: int = WORKERS) -> Iterator[Terminal]:
    """A terminal; its process is killed if it is still there."""
    terminal = Terminal(toy, state, workers)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.ours)


def test_three_workers_answer_and_are_gone(toy: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    args = ("--prompt", "hello", "--max-tokens", "8", "--seed", "0", "--json")
    ran = subprocess.run(
        command(toy, state, *args),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=START_BOUND,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    (line,) = ran.stdout.splitlines()
    answer = json.loads(line)
    assert [stage["layer_range"] for stage in answer["chain"]] == [[0, 2], [2, 4], [4, 6]]
    assert answer["completion_tokens"] == 8
    assert answer["finish_reason"] == "length"
    assert answer["tok_s"] > 0
    assert answer["ttft_ms"] > 0
    assert len(answer["claims"]) == 3
    assert answer["dir"] == str(state)
    assert_hops_went_from_peer_to_peer(answer)
    assert processes_of(state) == []


def assert_hops_went_from_peer_to_peer(answer: dict[str, Any]) -> None:
    first, second, third = (stage["peer_id"] for stage in answer["chain"])
    sent = [hop["frames_sent"] for hop in answer["hops"]]
    received = [hop["frames_received"] for hop in answer["hops"]]
    # One frame for the prompt, and one a token but the last.
    assert sent == [{second: 8}, {third: 8}, {}]
    assert received == [{}, {first: 8}, {second: 8}]
    assert "Hidden" not in answer["musivum"]["frames"]["received"]


def test_ranges_follow_the_order_of_the_claims(toy: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    args = ("--prompt", "hello", "--max-tokens", "1", "--json", "--claims", "24,9,64")
    ran = subprocess.run(
        command(toy, state, *args),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=START_BOUND,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)
    assert answer["claims"] == [24, 9, 64]
    assert [stage["layer_range"] for stage in answer["chain"]] == [[0, 3], [3, 4], [4, 6]]


def test_a_conversation_at_the_terminal(toy: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with at_terminal(toy, state, workers=3) as terminal:
        terminal.wait_for(b"> ")
        terminal.type(b"hello\n")
        terminal.wait_for(b"layers 4:6")
        terminal.wait_for(b"8 tokens")
        terminal.wait_for(b"> ")
        terminal.type(b"\x03")
        terminal.wait_for(b"Ctrl-C once more")
        terminal.type(b"x" * 2000 + b"\n")
        terminal.wait_for(b"context_length_exceeded")
        terminal.type(b"still there?\n")
        terminal.wait_for(b"8 tokens")
        terminal.wait_for(b"> ")
        terminal.type(b"\x04")
        assert terminal.process.wait(END_BOUND) == 0
    assert processes_of(state) == []


@pytest.mark.parametrize("ready", [False, True], ids=["starting", "serving"])
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_no_process_outlives_a_signal(
    number: signal.Signals, status: int, ready: bool, toy: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    with at_terminal(toy, state) as terminal:
        if ready:
            terminal.wait_for(b"> ")
        else:
            wait_until(lambda: len(processes_of(state)) == 2 + WORKERS, START_BOUND)
        terminal.process.send_signal(number)
        if ready and number == signal.SIGINT:
            terminal.wait_for(b"Ctrl-C once more")
            terminal.process.send_signal(number)
        assert terminal.process.wait(END_BOUND) == status
        wait_until(lambda: processes_of(state) == [], END_BOUND)
        assert b"Traceback" not in terminal.seen


def test_a_worker_that_dies_is_named_and_the_rest_end(toy: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    key = str(state / "worker-2.key").encode()
    with at_terminal(toy, state) as terminal:
        terminal.wait_for(b"> ")
        lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in processes_of(state)}
        (second,) = [pid for pid, line in lines.items() if key in line]
        os.kill(second, signal.SIGKILL)
        terminal.wait_for(b"tessella: process_died: worker-2 ended with status -9")
        assert terminal.process.wait(END_BOUND) == 1
        assert processes_of(state) == []
        assert b"Traceback" not in terminal.seen


def test_a_state_directory_is_used_by_one_at_a_time(toy: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with state_directory(state):
        ran = subprocess.run(
            command(toy, state, "--prompt", "hello"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_BOUND,
            check=False,
        )
    assert ran.returncode == 75
    assert str(state) in ran.stderr.splitlines()[-1]
