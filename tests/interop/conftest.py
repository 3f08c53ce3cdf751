"""Foreign peers, fetched once and kept, and a small swarm of our own for them to join."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from tessella.cli.processes import Children, Program, open_children, python_program
from tessella.core.ids import PeerId

# Foreign code is kept between runs: an install is a hundred packages.
CACHE = Path(os.environ.get("TESSELLA_HOME") or "~/.cache/tessella-tests").expanduser()
MODEL = "toy"
LAYERS = (0, 2)
# A worker imports torch, on machines with one busy core.
READY_SECONDS = 60.0


@dataclass(frozen=True)
class Swarm:
    """A bootstrap peer and one node of a toy model, each a process."""

    bootstrap: str
    """The multiaddr to dial it at, with its peer id."""
    bootstrap_id: PeerId
    worker_id: PeerId
    worker_addrs: tuple[str, ...]
    """With its peer id."""


@pytest.fixture
def cache() -> Path:
    """Where foreign code is kept between runs."""
    CACHE.mkdir(parents=True, exist_ok=True)
    return CACHE


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of four tiny layers."""
    from tessella.engine.toy import toy_shape, write_toy

    path = tmp_path_factory.mktemp("models") / MODEL
    write_toy(path, shape=toy_shape())
    return path


@pytest.fixture
async def swarm(toy: Path, tmp_path: Path) -> AsyncIterator[Swarm]:
    """A swarm over loopback without a hub, for one test."""
    env = {**os.environ, "TESSELLA_HOME": str(tmp_path / "home")}
    async with open_children(tmp_path, lambda _name, _event: None) as children:
        listen = ["--p2p", "127.0.0.1:0", "--data", str(tmp_path / "musivum")]
        bootstrap_id, addrs = await _start(
            children, env, "musivum", "musivum.cli", "serve", "--bootstrap-only", *listen
        )
        weights = ["--weights", str(toy), "--model", MODEL, "--claim-mb", "64"]
        layers = ["--layers", ":".join(map(str, LAYERS)), "--key", str(tmp_path / "node.key")]
        way = ["--kademlia", "--bootstrap", addrs[0], "--listen", "/ip4/127.0.0.1/tcp/0"]
        worker_id, worker_addrs = await _start(
            children, env, "worker", "tessella.cli.worker", *way, *weights, *layers
        )
        yield Swarm(addrs[0], bootstrap_id, worker_id, worker_addrs)


async def _start(
    children: Children, env: dict[str, str], name: str, module: str, *args: str
) -> tuple[PeerId, tuple[str, ...]]:
    """Start a program of ours; the peer it is, and where, once it serves."""
    argv = python_program(module, *args, "--json", "--until-stdin-closes")
    child = await children.start(Program(name=name, argv=argv, env=env, last=name == "musivum"))
    with trio.fail_after(READY_SECONDS):
        ready = await child.wait_for("ready", READY_SECONDS)
    addrs = tuple(str(addr) for addr in ready["addrs"])
    return PeerId(addrs[0].rpartition("/p2p/")[2]), addrs
