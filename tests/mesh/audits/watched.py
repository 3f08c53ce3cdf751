"""A mesh of real processes in which everybody is audited: its honest nodes, and who joins them."""

from __future__ import annotations

import json
import os
import random
import string
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from p2p.peers import Host
from tessella.client import Grant, ask_grant, ask_status, complete
from tessella.core.addresses import PeerAddress, parse_peer
from tessella.core.completions import ChatMessage, CompletionRequest
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.messages import AskGrant, Done
from tessella.core.sampling import Sampling
from tessella.engine.toy import toy_shape, write_toy
from tests.mesh.audits.worker_program import HONEST
from tests.mesh.restarts.musivum_program import HOST, Musivum, a_musivum
from tests.mesh.restarts.program import LOOK_SECONDS, Program
from tests.mesh.settlement.forked import Forked, Forker, open_forker

WORKER, MUSIVUM = "tests.mesh.audits.worker_program", "tests.mesh.audits.musivum_program"
MODEL = ModelId("toy")
# Who is suspected joins those of the middle. Two look at a disputed hop beside the three of its
# chain, so there are three entries; and three of the middle, of which one looks at nobody's hops.
MIDDLE = "2:4"
RANGES = ("0:2", "0:2", "0:2", MIDDLE, MIDDLE, MIDDLE, "4:6", "4:6")
# One of the middle marks whatever it is asked for past musivum. Its mark speaks against nobody in
# whose audit it has a word itself, so it has none.
WATERMARK = 5
# Positions of a session, prompt and answer together.
POSITIONS = 128
ANSWER_TOKENS = 6
LISTED_SECONDS = 10.0
_SEED = 20_253


@dataclass
class Node:
    """A worker that runs."""

    program: Forked
    address: PeerAddress

    @property
    def peer_id(self) -> PeerId:
        return self.address.peer_id

    @property
    def book(self) -> Path:
        """Its proofs."""
        return self.program.home / "node.proofs.db"


@dataclass
class Watched:
    """A musivum and its honest nodes, which run for as long as all cases take."""

    directory: Path
    forker: Forker
    planned: Musivum
    """Where it is and how it is asked."""
    musivum: Forked
    """Its process."""
    honest: list[Node] = field(default_factory=list)
    chance: random.Random = field(default_factory=lambda: random.Random(_SEED))
    answers: int = 0
    suspects: int = 0
    client: Identity = field(default_factory=lambda: Identity(os.urandom(32)))

    @property
    def ledger(self) -> Path:
        """The file of musivum's database."""
        return self.musivum.home / "musivum.db"

    @property
    def peers(self) -> list[PeerId]:
        """The honest nodes' ids."""
        return [node.peer_id for node in self.honest]

    async def start(self) -> None:
        """All of them, side by side."""
        write_toy(self.directory / "toy", shape=toy_shape(layers=6))
        self.musivum.start()
        started = [
            self._program(f"honest-{number}", HONEST, layers, _settings_of(number))
            for number, layers in enumerate(RANGES)
        ]
        for program in started:
            program.start()
        self.honest = [await _node(program) for program in started]
        await self.listed(*self.honest)

    async def join(self, cheat: str, *args: str, canary_mode: str = "off") -> Node:
        """One more node of the middle, with a key of its own, listed."""
        self.suspects += 1
        said: dict[str, object] = {"canary_mode": canary_mode}
        program = self._program(f"suspect-{self.suspects}", cheat, MIDDLE, said, *args)
        program.start()
        node = await _node(program)
        await self.listed(node)
        return node

    def _program(
        self, name: str, cheat: str, layers: str, said: dict[str, object], *args: str
    ) -> Forked:
        home = self.directory / name
        home.mkdir()
        settings = home / "worker_config.toml"
        lines = [f"{key} = {json.dumps(value)}" for key, value in said.items()]
        settings.write_text("\n".join(["[worker]", *lines, ""]))
        given = [cheat, "--layers", layers, "--listen", f"/ip4/{HOST}/tcp/0", "--no-api"]
        for place in self.planned.address.full():
            given += ["--musivum", place]
        given += ["--key", str(home / "node.key"), "--config", str(settings)]
        given += ["--model", MODEL, "--weights", str(self.directory / "toy"), "--claim-mb", "64"]
        given += ["--context", str(POSITIONS), "--device", "cpu", *args]
        return Forked(WORKER, tuple(given), home, forker=self.forker)

    async def listed(self, *nodes: Node) -> None:
        """Return when musivum lists all of these."""
        with trio.fail_after(LISTED_SECONDS):
            while not {node.peer_id for node in nodes} <= await self.serving():  # noqa: ASYNC110 - no event tells of it
                await trio.sleep(LOOK_SECONDS)

    async def serving(self) -> set[PeerId]:
        """Whom /peers lists as healthy, a canary among them."""
        listed = await self.planned.peers()
        return {peer_id for peer_id, row in listed.items() if row["status"] == "Healthy"}

    async def grant(self, host: Host) -> Grant:
        """A ticket, as any client with a key gets it."""
        asked = AskGrant(MODEL, POSITIONS, anonymous=False, after=b"")
        return await ask_grant(host, self.client, self.planned.address, asked)

    async def ask(self, host: Host, grant: Grant) -> None:
        """An answer to a prompt that nobody asked before, for a ticket."""
        await self._answered(host, grant.entry, grant)

    async def ask_without_ticket(self, host: Host) -> None:
        """The same without one: the entry asks for it."""
        await self._answered(host, self.honest[0].address, None)

    async def _answered(self, host: Host, entry: PeerAddress, grant: Grant | None) -> None:
        words = "".join(self.chance.choices(string.ascii_lowercase + " ", k=40))
        request = CompletionRequest(
            model=MODEL,
            messages=(ChatMessage("user", words),),
            prompt="",
            sampling=Sampling(max_tokens=ANSWER_TOKENS, ignore_eos=True),
        )
        events: Any = complete(host, entry, request, grant)
        async with aclosing(events):
            async for event in events:
                self.answers += isinstance(event, Done)

    async def opened_at(self, host: Host, node: Node) -> int:
        """How many sessions a node has served, as it says itself."""
        status = await ask_status(host, node.address)
        return int(status["sessions_opened"])

    def told(self, event: str, *workers: PeerId) -> list[dict[str, Any]]:
        """What musivum told of these."""
        events = self.musivum.events()
        return [each for each in events if each["event"] == event and each["worker"] in workers]

    def errors(self, *nodes: Node) -> str:
        """What programs wrote to stderr."""
        programs: list[Program] = [self.musivum, *(node.program for node in nodes)]
        return "\n".join(each.errors for each in programs)

    def close(self) -> None:
        """Leave nothing behind."""
        for program in (*(node.program for node in self.honest), self.musivum):
            if program.process is not None:
                program.end()


def _settings_of(number: int) -> dict[str, object]:
    return {"canary_mode": "watermark", "audits": False} if number == WATERMARK else {}


async def _node(program: Forked) -> Node:
    ready = await program.told("ready")
    return Node(program, parse_peer(ready["addrs"][0]))


@contextmanager
def open_watched(directory: Path) -> Iterator[Watched]:
    """A mesh of honest nodes, for as long as the context lasts."""
    planned = a_musivum(directory / "musivum", "")
    with open_forker(directory) as forker:
        musivum = Forked(MUSIVUM, planned.args, planned.home, forker=forker)
        watched = Watched(directory, forker, planned, musivum)
        try:
            trio.run(watched.start)
            yield watched
        finally:
            watched.close()
