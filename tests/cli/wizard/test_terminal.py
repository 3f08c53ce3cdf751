"""The wizard as its user meets it: a terminal, a musivum on the loopback interface, and a file."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import termios
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tessella.catalogue import DEFAULT_MODEL
from tessella.cli.mesh import musivum_program
from tessella.keys import load_key

pytestmark = [pytest.mark.mesh, pytest.mark.usefixtures("home")]

# Importing torch and libp2p on a busy machine.
START_BOUND = 60.0
ROWS, COLUMNS = 60, 80
WIZARD = """
import os
from pathlib import Path
from tessella.cli.wizard import run_wizard
from tessella.ending import EndedBySignal
try:
    run_wizard(Path("worker_config.toml"), os.environ)
except EndedBySignal as ended:
    raise SystemExit(128 + ended.number)
"""


def _as_a_shell_starts_it() -> None:
    """Ctrl-C reaches the processes of a terminal only once it is theirs, and those that were not
    told to ignore it, as whatever runs in the background is."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A terminal with the wizard at it."""

    def __init__(self, directory: Path) -> None:
        self.ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.seen = ""
        """What was written since the last text that was waited for."""
        self.all = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", WIZARD],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=directory,
            env={**os.environ, "PYTHONPATH": os.getcwd(), "TERM": "dumb"},
            start_new_session=True,
            preexec_fn=_as_a_shell_starts_it,
        )
        os.close(theirs)

    def answer(self, prompt: str, keys: str = "\r") -> str:
        """Wait for a prompt, then type; gives what stood before it."""
        before = self.wait_for(prompt)
        os.write(self.ours, keys.encode())
        return before

    def wait_for(self, text: str) -> str:
        end = time.monotonic() + START_BOUND
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} not in time, but {self.seen!r}"
            if select.select([self.ours], [], [], 0.1)[0]:
                read = os.read(self.ours, 65536).decode().replace("\r\n", "\n")
                self.seen += read
                self.all += read
        before, _, self.seen = self.seen.partition(text)
        return before


@contextmanager
def at_terminal(directory: Path) -> Iterator[Terminal]:
    """A terminal; its process is killed if it is still there."""
    terminal = Terminal(directory)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.ours)


@pytest.fixture
def musivum(tmp_path: Path) -> Iterator[str]:
    """The URL of a musivum that knows no node."""
    program = musivum_program(tmp_path / "musivum")
    process = subprocess.Popen(
        program.argv, env=program.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["http"][0]
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(START_BOUND)


def test_questions_are_answered_and_the_file_is_there(
    tmp_path: Path, home: Path, musivum: str
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        silent = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    with at_terminal(tmp_path) as terminal:
        terminal.answer("Orchestrator: ", f"{silent}\r")
        assert "cannot be reached" in terminal.answer("(again): ")
        terminal.answer(f"Orchestrator ({silent}): ", f"{musivum}\r")
        assert "No model is served there yet" in terminal.answer(f"Model ({DEFAULT_MODEL}): ")
        terminal.answer("Device: cuda, metal or cpu (", "cpu\r")
        assert "cpu has " in terminal.answer("Claim in MB", "512\r")
        assert f"Nobody serves {DEFAULT_MODEL} yet" in terminal.answer("Take it [y/n] (y): ")
        terminal.answer("Weights (./models): ", './a "b"\\c\r')
        terminal.answer("Key file (~/.config/tessella/node.key): ")
        terminal.answer("API port (HTTP) (", "18080\r")
        terminal.answer("P2P port (libp2p) (", "18080\r")
        assert "Port 18080 is the one of the API." in terminal.answer("(libp2p) (", "19080\r")
        assert f'orchestrator_url = "{musivum}"' in terminal.answer("Write it [y/n] (y): ")
        terminal.wait_for("tessella-worker --config ")
        assert terminal.process.wait(START_BOUND) == 0
    assert max(map(len, terminal.all.split("\n"))) <= max(COLUMNS, len(str(tmp_path)) + 60)
    path = tmp_path / "worker_config.toml"
    read = tomllib.loads(path.read_text())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (read["orchestrator_url"], read["default_model"]) == (musivum, DEFAULT_MODEL)
    assert read["worker"]["models_dir"] == './a "b"\\c'
    assert (read["worker"]["vram_mb"], read["worker"]["device"]) == (512, "cpu")
    assert (read["worker"]["api_port"], read["worker"]["p2p_port"]) == (18080, 19080)
    assert load_key(Path(read["keypair_path"])).peer_id in terminal.all.replace("\n", "")


@pytest.mark.parametrize("keys", ["\x03", "\x04"])
def test_ctrl_c_and_ctrl_d_leave_nothing(tmp_path: Path, home: Path, keys: str) -> None:
    directory = tmp_path / "here"
    directory.mkdir()
    with at_terminal(directory) as terminal:
        terminal.answer("Orchestrator: ", keys)
        terminal.wait_for("nothing was written: no worker_config.toml\n")
        assert terminal.process.wait(START_BOUND) == 130
    assert list(directory.iterdir()) == []
    assert not (home / ".config").exists()
