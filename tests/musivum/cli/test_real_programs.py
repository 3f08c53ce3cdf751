"""The real program in its own process, and the commands that speak with it over HTTP."""

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

import musivum
from musivum.testing import SMALL
from tessella.core.addresses import parse_peer
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.manifest import Manifest, manifest_document
from tessella.core.messages import STATUS, AskStatus, Status

pytestmark = pytest.mark.mesh

# As an installation without the worker's libraries would: importing one of these fails.
WITHOUT_TORCH = """
import sys
for name in ("torch", "numpy", "safetensors", "tokenizers", "gguf"):
    sys.modules[name] = None
from musivum.cli import run
run()
"""
START_SECONDS = 30
STOP_SECONDS = 3
ANY_PORT = ("--p2p", "127.0.0.1:0", "--http", "127.0.0.1:0")

Started = tuple["subprocess.Popen[str]", dict[str, Any]]


@contextmanager
def started(data: Path, *flags: str) -> Iterator[Started]:
    """A musivum of its own process, and its first line."""
    command = [sys.executable, "-c", WITHOUT_TORCH, "serve", "--json", "--data", str(data)]
    process = subprocess.Popen(
        [*command, *(flags or ANY_PORT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(musivum.__file__).parents[1])},
    )
    try:
        yield process, said(process)
    finally:
        process.kill()
        process.communicate(timeout=START_SECONDS)


def said(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line of a program."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate(timeout=START_SECONDS)
    found: dict[str, Any] = json.loads(line)
    return found


def end(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> None:
    """A signal, and what has to come of it."""
    began = time.monotonic()
    process.send_signal(number)
    _, errors = process.communicate(timeout=START_SECONDS)
    assert (process.returncode, errors) == (0, "")
    assert time.monotonic() - began < STOP_SECONDS


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


async def ask_status(addr: str) -> dict[str, Any]:
    """What it says of itself over libp2p."""
    from p2p.host import open_host

    peer = parse_peer(addr)
    async with open_host(Identity(b"c" * 32), listen=[]) as host:
        await host.connect(peer, timeout=10)
        async with await host.open_stream(peer.peer_id, STATUS, timeout=10) as stream:
            await stream.send(AskStatus())
            answer = await stream.receive(timeout=10)
    assert isinstance(answer, Status)
    found: dict[str, Any] = json.loads(answer.document)
    return found


def test_every_command_reaches_a_musivum_that_was_just_started(
    command: Any, tmp_path: Path
) -> None:
    data = tmp_path / "hub"
    with started(data) as (process, ready):
        (url,) = ready["http"]
        at = ("--url", url, "--data", str(data), "--json")

        def answer(*args: str) -> Any:
            ended = command(*args, *at)
            assert (ended.status, ended.err) == (0, "")
            return json.loads(ended.out)

        assert answer("status")["peer_id"] == ready["peer_id"]
        assert answer("peers") == []
        assert answer("rebalance") == {"moves": []}
        assert answer("reputation", "--all") == []
        assert answer("reputation", ready["peer_id"])[0]["joins"] == 0
        file = tmp_path / "m.json"
        document = manifest_document(Manifest(model=ModelId("small"), shape=SMALL))
        file.write_text(json.dumps(document))
        assert answer("manifest", "publish", str(file))["contract"] == document["contract"]
        assert answer("manifest", "show", "small")["published"] is True
        for args in (("status",), ("peers",), ("rebalance",), ("manifest", "show", "small")):
            ended = command(*args, *at[:-1])
            assert (ended.status, ended.err) == (0, "")
        assert ready["peer_id"] in command("status", *at[:-1]).out
        settings = json.loads(command("config", "--data", str(data), "--json").out)
        assert settings["key"]["value"] == str(data / "musivum.key")

        wrong = tmp_path / "wrong"
        wrong.write_text("w" * 64)
        wrong.chmod(0o600)
        ended = command("rebalance", *at, "--token-file", str(wrong))
        assert (ended.status, ended.out) == (1, "")
        assert ended.err.startswith("musivum: admin_only: ")
        assert ended.err.count("\n") == 1

        second = command("serve", "--data", str(data), *ANY_PORT)
        assert (second.status, second.out) == (78, "")
        assert second.err.startswith("musivum: bad_config: ")
        assert str(data / "musivum.db") in second.err
        assert second.err.count("\n") == 1
        end(process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_starts_without_torch_answers_and_leaves_on_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    with started(tmp_path) as (process, ready):
        assert ready["event"] == "ready"
        assert trio.run(ask_status, ready["addrs"][0])["peer_id"] == ready["peer_id"]
        end(process, number)


def test_it_ends_when_its_parent_does_and_keeps_identity_and_token(tmp_path: Path) -> None:
    seen = set()
    for _ in range(2):
        with started(tmp_path, *ANY_PORT, "--until-stdin-closes") as (process, ready):
            seen.add((ready["peer_id"], (tmp_path / "admin.token").read_text()))
            _, errors = process.communicate(timeout=10)
            assert (process.returncode, errors) == (0, "")
    assert len(seen) == 1


@pytest.mark.parametrize("flag", ["--p2p", "--http"])
def test_a_port_in_use_is_one_line_and_worth_another_try(
    flag: str, tmp_path: Path, command: Any
) -> None:
    other = {"--p2p": "--http", "--http": "--p2p"}[flag]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = (flag, f"127.0.0.1:{port}", other, "127.0.0.1:0")
        ended = command("serve", *flags, "--data", str(tmp_path))
    assert (ended.status, ended.out) == (75, "")
    assert ended.err.startswith("musivum: port_in_use: ")
    assert str(port) in ended.err
    assert ended.err.count("\n") == 1


def test_a_second_musivum_stands_by_and_takes_over(tmp_path: Path, postgres: Any) -> None:
    url = postgres.url(postgres.new_database())
    ports = ("--p2p", f"127.0.0.1:{free_port()}", "--http", f"127.0.0.1:{free_port()}")
    flags = ("--database-url", url, *ports)
    with started(tmp_path, *flags) as (first, ready):
        assert ready["event"] == "ready"
        # On the ports of the first: it opens none before it leads.
        with started(tmp_path, *flags) as (second, standby):
            assert standby == {"event": "standby"}
            first.kill()
            assert said(second) == ready
            end(second)
