"""`tessella chat` at a terminal: a real one, with a program behind it that answers over HTTP."""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tessella.cli.history import FILE_NAME

pytestmark = pytest.mark.mesh

BOUND = 30.0


class Handler(BaseHTTPRequestHandler):
    """Says `**word**` for ever where it is asked to, and once otherwise."""

    asked: list[dict[str, Any]]

    def do_GET(self) -> None:
        body = json.dumps({"role": "worker", "model": "toy"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(asked)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            while True:
                self._event({"choices": [{"delta": {"content": "**word** "}}]})
                if "for ever" not in asked["messages"][-1]["content"]:
                    break
                time.sleep(0.02)
            self._event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            # Whoever asked has heard enough.
            return

    def _event(self, chunk: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def asked() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Where a node answers, and what it was asked."""
    Handler.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", Handler.asked
    server.shutdown()
    thread.join()
    server.server_close()


class Terminal:
    """A terminal with a program at it."""

    def __init__(self, argv: list[str]) -> None:
        self.ours, theirs = os.openpty()
        self.seen = b""
        self.process = subprocess.Popen(
            argv,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm"},
            start_new_session=True,
            # Ctrl-C reaches the processes of a terminal only once it is theirs.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)

    def type(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def wait_for(self, text: bytes) -> bytes:
        """What was there up to a text."""
        end = time.monotonic() + BOUND
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} is not in {self.seen!r}"
            if select.select([self.ours], [], [], 0.1)[0]:
                self.seen += os.read(self.ours, 65536)
        before, _, self.seen = self.seen.partition(text)
        return before

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)


def test_a_conversation_at_a_terminal(
    asked: tuple[str, list[dict[str, Any]]], home: Path, tmp_path: Path
) -> None:
    url, requests = asked
    file = tmp_path / "session.json"
    chat = [sys.executable, "-m", "tessella.cli.main", "-a", url, "chat"]
    terminal = Terminal([*chat, "--session-file", str(file)])
    try:
        terminal.wait_for(b"> ")
        terminal.type(b"one \\\n")
        terminal.wait_for(b". ")
        terminal.type(b"more\n")
        shown = terminal.wait_for(b"(stop)")
        assert b"word" in shown
        assert b"**" not in shown
        terminal.wait_for(b"> ")
        terminal.type(b"for ever\n")
        terminal.wait_for(b"word")
        terminal.type(b"\x03")
        terminal.wait_for(b"(stopped)")
        terminal.wait_for(b"> ")
        terminal.type(b"/undoo\n")
        terminal.wait_for(b"the nearest is /undo")
        terminal.wait_for(b"> ")
        # The line before the last.
        terminal.type(b"\x1b[A\x1b[A\n")
        terminal.wait_for(b"word")
        terminal.type(b"\x03")
        terminal.wait_for(b"(stopped)")
        terminal.wait_for(b"> ")
        terminal.type(b"\x04")
        assert terminal.process.wait(BOUND) == 0
    finally:
        terminal.close()
    said = [turn["content"] for turn in requests[-1]["messages"][::2]]
    assert said == ["one \nmore", "for ever", "for ever"]
    turns = json.loads(file.read_text())["turns"]
    assert turns[-1]["content"].startswith("**word** ")
    lines = (home / FILE_NAME).read_text().splitlines()
    assert lines[:3] == ["one \\", "more", "for ever"]
