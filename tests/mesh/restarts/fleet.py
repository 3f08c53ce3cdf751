"""A mesh of processes: musivums, and three workers that hold a toy between them.

All of them are forked: what a life takes is its own, and not the imports of Python.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from p2p.host import open_host
from tessella.client import complete
from tessella.core.addresses import PeerAddress, parse_peer
from tessella.core.completions import ChatMessage, CompletionRequest
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.messages import Begun, Delta
from tessella.core.peers import NodeStatus
from tessella.core.sampling import Sampling
from tessella.engine.toy import toy_shape, write_toy
from tests.mesh.restarts.crowd import LISTEN, Crowd
from tests.mesh.restarts.musivum_program import Listed, Musivum, a_musivum
from tests.mesh.settlement.forked import Forked, Forker, open_forker
from tests.mesh.settlement.points import MUSIVUM, WORKER

RANGES = ("0:2", "2:4", "4:6")


@dataclass
class ForkedMusivum(Forked, Musivum):
    """A musivum as it is, whose every life is forked."""


@dataclass
class Fleet:
    """Musivums of one mesh, and three workers that hold a toy between them."""

    directory: Path
    forker: Forker
    musivums: list[ForkedMusivum]
    workers: list[Forked] = field(default_factory=list)
    nodes: list[PeerAddress] = field(default_factory=list)
    answer: list[int] = field(default_factory=list)
    """Token ids of the first answer: every other one is the same."""
    answers: int = 0

    async def start(self) -> None:
        """The first musivum, and the workers, side by side."""
        write_toy(self.directory / "toy", shape=toy_shape(layers=6))
        places = [place for each in self.musivums for place in each.address.full()]
        self.musivums[0].start()
        for number, layers in enumerate(RANGES):
            home = self.directory / f"worker-{number}"
            args = [word for place in places for word in ("--musivum", place)]
            args += ["--layers", layers, "--listen", LISTEN, "--key", str(home / "node.key")]
            args += ["--model", "toy", "--weights", str(self.directory / "toy")]
            args += ["--no-api", "--claim-mb", "64", "--context", "128", "--device", "cpu"]
            worker = Forked(WORKER, tuple(args), home, forker=self.forker, has_traps=False)
            self.workers.append(worker)
            worker.start()
        for worker in self.workers:
            ready = await worker.told("ready")
            self.nodes.append(parse_peer(ready["addrs"][0]))
        await self.ask()

    async def ask(self) -> None:
        """An answer of all three workers, the same as ever; needs no musivum."""
        request = CompletionRequest(
            model=ModelId("toy"),
            messages=(ChatMessage("user", "hello"),),
            prompt="",
            sampling=Sampling(max_tokens=8),
        )
        ids, chain = [], 0
        async with open_host(Identity(os.urandom(32)), listen=[]) as host:
            events: Any = complete(host, self.nodes[0], request)
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, Begun):
                        chain = len(event.chain)
                    elif isinstance(event, Delta):
                        ids.append(event.token_id)
        assert chain == len(RANGES)
        self.answer = self.answer or ids
        assert ids == self.answer != []
        self.answers += 1

    def restarts(self) -> int:
        """How many workers ended, or loaded their layers more than once."""
        again = 0
        for worker in self.workers:
            loads = sum(event["event"] == "assigned" for event in worker.events())
            again += worker.status is not None or loads != 1
        return again

    def wrong(self, listed: Listed) -> list[str]:
        """The ranges that are not listed as they are served, by the node that serves them."""
        return [
            layers
            for layers, node in zip(RANGES, self.nodes, strict=True)
            if node.peer_id not in listed or _served(listed[node.peer_id]) != layers
        ]

    def crowd(self, seed: int) -> Crowd:
        """Others that join this mesh; the seed decides who dies."""
        return Crowd([each.address for each in self.musivums], random.Random(seed))

    def close(self) -> None:
        """Leave nothing behind."""
        for program in (*self.workers, *self.musivums):
            if program.process is not None:
                program.end()


def _served(row: dict[str, Any]) -> str:
    ((start, stop),) = row["layer_ranges"]
    ready = row["status"] == NodeStatus.HEALTHY.value
    return f"{start}:{stop}" if ready else str(row["status"])


def _forked(planned: Musivum, forker: Forker) -> ForkedMusivum:
    return ForkedMusivum(
        MUSIVUM,
        planned.args,
        planned.home,
        address=planned.address,
        ports=planned.ports,
        forker=forker,
        has_traps=False,
    )


@contextmanager
def open_fleet(directory: Path, musivums: int = 1, database_url: str = "") -> Iterator[Fleet]:
    """A mesh of so many musivums, on one database, for as long as the context lasts."""
    planned = [
        a_musivum(directory / f"musivum-{number}", database_url) for number in range(musivums)
    ]
    with open_forker(directory) as forker:
        fleet = Fleet(directory, forker, [_forked(each, forker) for each in planned])
        try:
            trio.run(fleet.start)
            yield fleet
        finally:
            fleet.close()
