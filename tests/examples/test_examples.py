"""Every lesson runs as its docstring says, and ends with what it promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tessella.engine.toy import toy_shape, write_toy

pytestmark = pytest.mark.mesh

ROOT = Path(__file__).parents[2]
SECONDS = 90
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def ended(name: str, *args: str) -> subprocess.CompletedProcess[str]:
    """An example that was run to its end."""
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env=ENVIRONMENT,
    )


def output(name: str) -> str:
    done = ended(name)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@contextmanager
def ready(module: str, *args: str) -> Iterator[str]:
    """A program, with the address it is reached at, until the context is left."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *args, "--json", "--until-stdin-closes"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                event = json.loads(line)
                if event["event"] == "ready":
                    yield event["addrs"][0]
                    break
            else:
                raise AssertionError(process.communicate(timeout=SECONDS))
        finally:
            process.kill()


@pytest.fixture(scope="module")
def musivum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a musivum whose mesh is one node with the whole toy."""
    place = tmp_path_factory.mktemp("mesh")
    write_toy(place / "toy", shape=toy_shape())
    with ExitStack() as stack:
        hub = ["serve", "--p2p", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", str(place)]
        address = stack.enter_context(ready("musivum.cli", *hub, "--min-vram-mb", "0"))
        node = ["--musivum", address, "--weights", str(place / "toy"), "--claim-mb", "600"]
        own = ["--listen", "/ip4/127.0.0.1/tcp/0", "--key", str(place / "node.key"), "--no-api"]
        size = ["--context", "256", "--device", "cpu"]
        stack.enter_context(ready("tessella.cli.worker", *node, *own, *size))
        yield address


def test_two_peers_exchange_a_question_and_an_answer() -> None:
    lines = output("01_two_peers.py").splitlines()
    assert lines[0].startswith("bob listens on /ip4/127.0.0.1/tcp/")
    assert lines[1].startswith("  bob got AskStatus from 12D3KooW")
    assert lines[2] == "alice got {'says': 'hello'}"


def test_two_halves_answer_like_the_whole() -> None:
    whole, halves, verdict = output("02_split_by_hand.py").splitlines()[-3:]
    assert whole.startswith("whole:  [")
    assert halves.startswith("halves: [")
    assert halves.endswith(", 3072 bytes of hidden states between them")
    assert verdict == "the same"


def test_a_mesh_in_memory_answers_through_three_nodes() -> None:
    lines = output("03_mesh_in_memory.py").splitlines()
    assert "chain: [0:2] -> [2:4] -> [4:6]" in lines
    assert sum(line.startswith("  token ") for line in lines) == 16
    assert lines[-1] == "done: 16 tokens (length)"


def test_a_chat_with_a_running_mesh(musivum: str) -> None:
    done = ended("04_chat.py", "--musivum", musivum, "--max-tokens", "5", "Hello there")
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert said[0].endswith("for toy")
    assert said[1].startswith("  layers 0:4 at 12D3KooW")
    assert said[2].split()[1] == "tokens"
    assert done.stdout.endswith("\n")


@pytest.mark.parametrize(
    ("address", "status", "said"),
    [
        ("nonsense", 1, "bad_address: "),
        ("/ip4/127.0.0.1/tcp/1/p2p/{}", 75, "peer_unreachable: "),
    ],
)
def test_a_chat_that_cannot_begin_is_one_line(
    musivum: str, address: str, status: int, said: str
) -> None:
    peer = musivum.rpartition("/")[2]
    done = ended("04_chat.py", "--musivum", address.format(peer), "Hello")
    assert done.returncode == status
    assert done.stdout == ""
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1
