"""The command: what it accepts, what it says, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from musivum import cli
from musivum.cli import listen_addr, run
from tessella.core.addresses import parse_peer
from tessella.core.errors import BadAddress, BadKey, PeerSilent
from tessella.core.identity import Identity
from tessella.core.messages import STATUS, AskStatus, Status

# As an installation without the worker's libraries would: importing one of these fails.
WITHOUT_TORCH = """
import sys
for name in ("torch", "numpy", "safetensors", "tokenizers", "gguf"):
    sys.modules[name] = None
from musivum.cli import run
run()
"""
START_SECONDS = 30


@pytest.mark.parametrize(
    ("text", "addr"),
    [
        ("127.0.0.1:4001", "/ip4/127.0.0.1/tcp/4001"),
        (":0", "/ip4/0.0.0.0/tcp/0"),
        ("localhost:9", "/ip4/127.0.0.1/tcp/9"),
        ("[::1]:4001", "/ip6/::1/tcp/4001"),
        ("/ip6/::/tcp/4001", "/ip6/::/tcp/4001"),
    ],
)
def test_where_to_listen_is_a_host_and_port_or_a_multiaddr(text: str, addr: str) -> None:
    assert listen_addr(text) == addr


@pytest.mark.parametrize(
    "text", ["", "4001", "127.0.0.1", "host:x", "1.2.3:4", "::1:4", "1.2.3.4:65536", "/ip4/x"]
)
def test_what_cannot_be_listened_on_is_named(text: str) -> None:
    with pytest.raises(BadAddress) as caught:
        listen_addr(text)
    assert text in str(caught.value)


def ended(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["musivum", *argv])
    with pytest.raises(SystemExit) as caught:
        run()
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--p2p", "nonsense"], "musivum: bad_address: not HOST:PORT, nor a multiaddr: 'nonsense'"),
        (["--min-vram-mb", "-1"], "musivum: bad_config: min_vram_mb = -1: has to be at least 0"),
    ],
)
def test_a_wrong_flag_is_one_line_and_exit_1(
    argv: list[str],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended(["serve", "--data", str(tmp_path), *argv], monkeypatch) == 1
    assert capsys.readouterr().err == line + "\n"


def test_a_key_that_others_may_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "musivum.key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o644)
    assert ended(["serve", "--data", str(tmp_path)], monkeypatch) == 1
    assert capsys.readouterr().err == (
        f"musivum: bad_key: others may use the key {key} (mode 0644): chmod 600 it\n"
    )


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ExceptionGroup("n", [BadKey("k")]), 1, "musivum: bad_key: k"),
        (
            ExceptionGroup("n", [ExceptionGroup("m", [PeerSilent("p")])]),
            75,
            "musivum: peer_silent: p",
        ),
        (
            ExceptionGroup("n", [BadKey("k"), KeyError("bug")]),
            1,
            "musivum: internal_error: KeyError: 'bug'",
        ),
        (ValueError("two\nlines"), 1, "musivum: internal_error: ValueError: two lines"),
    ],
)
def test_whatever_goes_wrong_is_one_line(
    error: Exception,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    assert ended([], monkeypatch) == code
    assert capsys.readouterr().err == line + "\n"


@contextmanager
def started(data: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A musivum of its own process, and its ready line."""
    command = [sys.executable, "-c", WITHOUT_TORCH, "serve", "--p2p", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(
        [*command, "--data", str(data), *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[1])},
    )
    assert process.stdout is not None
    try:
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.communicate(timeout=START_SECONDS)


@pytest.mark.mesh
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_starts_without_torch_answers_and_leaves_on_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    from p2p.host import open_host

    async def ask_status(addr: str) -> dict[str, Any]:
        peer = parse_peer(addr)
        async with open_host(Identity(b"c" * 32), listen=[]) as host:
            await host.connect(peer, timeout=10)
            async with await host.open_stream(peer.peer_id, STATUS, timeout=10) as stream:
                await stream.send(AskStatus())
                answer = await stream.receive(timeout=10)
        assert isinstance(answer, Status)
        found: dict[str, Any] = json.loads(answer.document)
        return found

    with started(tmp_path) as (process, ready):
        assert ready["event"] == "ready"
        document = trio.run(ask_status, ready["addrs"][0])
        assert document["peer_id"] == ready["peer_id"]
        began = time.monotonic()
        process.send_signal(number)
        _, errors = process.communicate(timeout=10)
        assert (process.returncode, errors) == (0, "")
        assert time.monotonic() - began < 5


@pytest.mark.mesh
def test_it_ends_when_its_parent_does_and_keeps_its_identity(tmp_path: Path) -> None:
    peers = set()
    for _ in range(2):
        with started(tmp_path, "--until-stdin-closes") as (process, ready):
            peers.add(ready["peer_id"])
            _, errors = process.communicate(timeout=10)
            assert (process.returncode, errors) == (0, "")
    assert len(peers) == 1


@pytest.mark.mesh
def test_a_port_in_use_is_one_line_and_worth_another_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = ["--p2p", f"127.0.0.1:{port}", "--data", str(tmp_path)]
        assert ended(["serve", *flags], monkeypatch) == 75
    error = capsys.readouterr().err
    assert error.startswith("musivum: port_in_use: ")
    assert str(port) in error
    assert error.count("\n") == 1
