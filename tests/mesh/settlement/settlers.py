"""A mesh of real processes whose work is paid: a musivum, three workers of a toy, and a client."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from p2p.host import open_host
from p2p.peers import Host
from tessella.client import ask_grant, complete
from tessella.core.addresses import PeerAddress
from tessella.core.completions import ChatMessage, CompletionRequest
from tessella.core.errors import TessellaError
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.messages import AskGrant, Done
from tessella.core.sampling import Sampling
from tessella.engine.toy import toy_shape, write_toy
from tests.mesh.restarts.musivum_program import HOST, a_musivum, free_ports
from tests.mesh.restarts.program import LOOK_SECONDS
from tests.mesh.settlement.accounts import unsettled
from tests.mesh.settlement.forked import Forked, Forker, open_forker, until
from tests.mesh.settlement.points import MUSIVUM, WORKER

RANGES = ("0:2", "2:4", "4:6")
# Positions of a ticket.
TOKENS = 64
# A mesh that was whole a moment ago answers within this.
ANSWER_SECONDS = 30.0
SETTLED_SECONDS = 30.0


@dataclass
class Settlers:
    """Its programs may be killed and started again."""

    directory: Path
    forker: Forker
    musivum: Forked
    address: PeerAddress
    """Musivum's."""
    workers: list[Forked] = field(default_factory=list)
    peers: list[PeerId] = field(default_factory=list)
    """The workers' ids, the entry's first."""
    ranges: tuple[str, ...] = RANGES
    disk: Path | None = None
    """Where the first worker has its key, and musivum its database; their homes otherwise."""
    answers: int = 0
    client: Identity = field(default_factory=lambda: Identity(os.urandom(32)))

    @property
    def books(self) -> list[Path]:
        """The workers' books."""
        return [self._keys(worker.home) / "node.proofs.db" for worker in self.workers]

    def _keys(self, home: Path) -> Path:
        return self.disk if self.disk and home.name == "worker-0" else home

    @property
    def ledger(self) -> Path:
        """The file of musivum's database."""
        return (self.disk or self.musivum.home) / "musivum.db"

    async def start(self) -> None:
        """All programs, the workers side by side."""
        write_toy(self.directory / "toy", shape=toy_shape(layers=6))
        # First, so that it has its ports before workers look for free ones.
        await self.musivum.restart()
        for number, (layers, port) in enumerate(
            zip(self.ranges, free_ports(len(self.ranges)), strict=True)
        ):
            home = self.directory / f"worker-{number}"
            args = ["--layers", layers, "--listen", f"/ip4/{HOST}/tcp/{port}"]
            for place in self.address.full():
                args += ["--musivum", place]
            args += ["--key", str(self._keys(home) / "node.key"), "--model", "toy"]
            args += ["--weights", str(self.directory / "toy"), "--no-api", "--claim-mb", "64"]
            args += ["--context", "128", "--device", "cpu"]
            self.workers.append(Forked(WORKER, tuple(args), home, forker=self.forker))
            self.workers[-1].start()
        for worker in self.workers:
            ready = await worker.told("ready")
            self.peers.append(PeerId(ready["peer_id"]))

    async def ask(self, host: Host) -> None:
        """One answer of all workers, for a ticket. Raises TessellaErrors."""
        grant = await ask_grant(
            host, self.client, self.address, AskGrant(ModelId("toy"), TOKENS, False, b"")
        )
        request = CompletionRequest(
            model=ModelId("toy"),
            messages=(ChatMessage("user", "hello"),),
            prompt="",
            sampling=Sampling(max_tokens=4, ignore_eos=True),
        )
        events: Any = complete(host, grant.entry, request, grant)
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Done):
                    self.answers += 1

    async def try_to_ask(self, host: Host) -> bool:
        """The same, of a mesh in which somebody may die; whether it went well."""
        try:
            with trio.fail_after(ANSWER_SECONDS):
                await self.ask(host)
        except TessellaError:
            return False
        return True

    async def ask_until_answered(self, host: Host) -> None:
        """One answer, of a mesh that was just made whole."""
        with trio.fail_after(ANSWER_SECONDS):
            while not await self.try_to_ask(host):  # noqa: ASYNC110 - no event tells of it
                await trio.sleep(5 * LOOK_SECONDS)

    async def settled(self) -> None:
        """Return when every proof in every book is settled, as far as it can be."""
        await until(lambda: not unsettled(self.books), SETTLED_SECONDS)
        left = unsettled(self.books)
        assert not left, f"not settled after {SETTLED_SECONDS:g} s: {left}; {self.errors()}"

    def errors(self) -> str:
        """What the programs wrote to stderr in this life."""
        return "\n".join(each.errors for each in (self.musivum, *self.workers))

    def close(self) -> None:
        """Leave nothing behind."""
        for program in (*self.workers, self.musivum):
            if program.process is not None:
                program.end()


@contextmanager
def open_settlers(
    directory: Path, ranges: tuple[str, ...] = RANGES, disk: Path | None = None
) -> Iterator[Settlers]:
    """A mesh that is whole, for as long as the context lasts."""
    url = f"sqlite:///{disk / 'musivum.db'}" if disk else ""
    planned = a_musivum(directory / "musivum", url)
    with open_forker(directory) as forker:
        musivum = Forked(MUSIVUM, planned.args, planned.home, forker=forker)
        settlers = Settlers(directory, forker, musivum, planned.address, ranges=ranges, disk=disk)
        try:
            trio.run(settlers.start)
            yield settlers
        finally:
            settlers.close()


@asynccontextmanager
async def client_of(settlers: Settlers) -> AsyncIterator[Host]:
    """A host with the key of whoever asks."""
    async with open_host(settlers.client, listen=[]) as host:
        yield host
