"""Where foreign peers are kept, and a small swarm of our own for them to join."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from tessella.cli.processes import Children, Program, open_children, python_program
from tessella.core.addresses import PeerAddress, merge, parse_peer
from tessella.core.ids import PeerId

# Kept between runs: an install is a hundred packages.
CACHE = Path(os.environ.get("TESSELLA_HOME") or "~/.cache/tessella-tests").expanduser()
# A worker imports torch, and machines that test may have one busy core.
READY_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Swarm:
    """A bootstrap peer, and one node that holds a part of a toy model: a process each."""

    bootstrap: str
    """The multiaddr to dial it at, with its peer id."""
    worker: PeerAddress
    model: str = "toy"
    layers: tuple[int, int] = (0, 2)
    total_layers: int = 4

    @property
    def bootstrap_id(self) -> PeerId:
        """Who it should be."""
        return parse_peer(self.bootstrap).peer_id


@pytest.fixture
def cache() -> Path:
    """Where foreign code is kept between runs."""
    CACHE.mkdir(parents=True, exist_ok=True)
    return CACHE


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a few tiny layers."""
    from tessella.engine.toy import toy_shape, write_toy

    path = tmp_path_factory.mktemp("models") / Swarm.model
    write_toy(path, shape=toy_shape(layers=Swarm.total_layers))
    return path


@pytest.fixture
async def swarm(toy: Path, tmp_path: Path) -> AsyncIterator[Swarm]:
    """A swarm on the loopback interface, without a hub, for one test."""
    start, stop = Swarm.layers
    home = tmp_path / "home"
    async with open_children(tmp_path, lambda _name, _event: None) as children:
        listen = ("--p2p", "127.0.0.1:0", "--data", str(tmp_path / "musivum"))
        bootstrap = await started(
            children, home, "musivum.cli", "serve", "--bootstrap-only", *listen, last=True
        )
        way = ("--kademlia", "--bootstrap", bootstrap[0], "--listen", "/ip4/127.0.0.1/tcp/0")
        holds = ("--model", Swarm.model, "--weights", str(toy), "--layers", f"{start}:{stop}")
        own = ("--no-api", "--claim-mb", "64", "--key", str(tmp_path / "node.key"))
        worker = await started(children, home, "tessella.cli.worker", *way, *holds, *own)
        (address,) = merge(map(parse_peer, worker))
        yield Swarm(bootstrap=bootstrap[0], worker=address)


async def started(
    children: Children, home: Path, module: str, *args: str, last: bool = False
) -> list[str]:
    """Start a program of ours; the full addresses it serves at."""
    argv = python_program(module, *args, "--json", "--until-stdin-closes")
    env = {**os.environ, "TESSELLA_HOME": str(home)}
    child = await children.start(Program(name=module, argv=argv, env=env, last=last))
    with trio.fail_after(READY_SECONDS):
        ready = await child.wait_for("ready", READY_SECONDS)
    return [str(addr) for addr in ready["addrs"]]
