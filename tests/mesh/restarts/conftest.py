"""Programs that are killed and started again, and nodes that keep a musivum busy meanwhile."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import trio

from musivum.testing import SMALL, a_registration
from p2p.host import open_host
from tessella.client import complete
from tessella.core.addresses import PeerAddress, parse_peer
from tessella.core.completions import ChatMessage, CompletionRequest
from tessella.core.errors import Refused, TessellaError
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Announce, Begun, Delta
from tessella.core.peers import NodeStatus
from tessella.core.sampling import Sampling
from tessella.engine.toy import toy_shape, write_toy
from tessella.keys import load_or_create_key
from tessella.web.client import CallLimits, get_json, open_client
from tessella.worker.membership import Membership
from tessella.worker.mesh import Member, News
from tessella.worker.tracker import Tracker, is_away

HOST = "127.0.0.1"
LISTEN = f"/ip4/{HOST}/tcp/0"
BEAT = 1.0
# By then a list is right, whatever its musivum missed; a look at it takes a while on busy cores.
RIGHT_BEATS = 2
SLACK_SECONDS = 0.5
RANGES = ("0:2", "2:4", "4:6")
START_SECONDS = 60.0
END_SECONDS = 10.0
LOOK_SECONDS = 0.02
MAX_LIST = 4 << 20
# Each is a host with its sockets and tasks, in the process of the test.
CROWD = 12
# Between two that come: at most moments one is on its way in.
COME_SECONDS = 0.15
# Then it gives up, and another comes: who waits for a musivum waits longer each time.
JOIN_SECONDS = 1.0


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on, no two the same."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@dataclass
class Program:
    """A program in its own process, that tells its life in JSON lines. It may live many times."""

    module: str
    args: tuple[str, ...]
    home: Path
    lives: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Live; ended with us, however we end."""
        self.lives += 1
        self.home.mkdir(parents=True, exist_ok=True)
        outside = ("MUSIVUM_", "TESSELLA_")
        env = {key: value for key, value in os.environ.items() if not key.startswith(outside)}
        env |= {"TESSELLA_HOME": str(self.home), "OMP_NUM_THREADS": "1"}
        env["MUSIVUM_HEARTBEAT_SECONDS"] = str(BEAT)
        argv = [sys.executable, "-m", self.module, *self.args, "--json", "--until-stdin-closes"]
        with self._file("out").open("wb") as out, self._file("err").open("wb") as err:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=out, stderr=err, env=env
            )

    def _file(self, kind: str) -> Path:
        return self.home / f"life-{self.lives}.{kind}"

    @property
    def status(self) -> int | None:
        """The exit status of this life; None while it lives."""
        assert self.process is not None
        return self.process.poll()

    @property
    def is_running(self) -> bool:
        """Whether it lives."""
        return self.process is not None and self.process.poll() is None

    @property
    def errors(self) -> str:
        """What it wrote to stderr in this life."""
        return self._file("err").read_text(errors="replace")

    def events(self) -> list[dict[str, Any]]:
        """What it told in this life."""
        *whole, _ = self._file("out").read_text().split("\n")
        return [json.loads(line) for line in whole]

    async def restart(self) -> float:
        """Live again; seconds until it is ready."""
        began = trio.current_time()
        self.start()
        await self.told("ready")
        return trio.current_time() - began

    async def told(self, event: str) -> dict[str, Any]:
        """The first event of a kind, waited for."""
        with trio.fail_after(START_SECONDS):
            while True:
                status = self.status
                for each in self.events():
                    if each["event"] == event:
                        return each
                assert status is None, f"{self.args}: ended with {status}: {self.errors}"
                await trio.sleep(LOOK_SECONDS)

    async def ended(self) -> int:
        """The status it ends with, waited for."""
        with trio.fail_after(START_SECONDS):
            while self.status is None:  # noqa: ASYNC110 - no event tells of its end
                await trio.sleep(LOOK_SECONDS)
        return self.end()

    def end(self) -> int:
        """SIGKILL, if it lives; its exit status."""
        assert self.process is not None
        self.process.kill()
        status = self.process.wait(END_SECONDS)
        if self.process.stdin is not None:
            self.process.stdin.close()
        return status


@dataclass
class Musivum(Program):
    """A musivum: its key, its directory and its ports are the same in every life."""

    address: PeerAddress = field(default_factory=lambda: PeerAddress(PeerId(""), ()))
    ports: tuple[int, int] = (0, 0)

    def forget_all(self) -> None:
        """Delete the file, and what SQLite keeps beside it."""
        for file in self.home.glob("musivum.db*"):
            file.unlink()

    async def peers(self) -> dict[str, dict[str, Any]]:
        """What it lists at /peers, by peer id."""
        async with open_client() as client:
            url = f"http://{HOST}:{self.ports[1]}/peers"
            rows: Any = await get_json(client, url, limits=CallLimits(answer=MAX_LIST))
        return {row["peer_id"]: row for row in rows}

    async def right(self, wrong: Callable[[Any], Any]) -> float:
        """Seconds until `wrong` finds nothing in the list; it has RIGHT_BEATS from here on."""
        began = trio.current_time()
        while found := wrong(await self.peers()):
            took = trio.current_time() - began
            assert took < RIGHT_BEATS * BEAT + SLACK_SECONDS, f"after {took:.2f} s: {found}"
            await trio.sleep(LOOK_SECONDS)
        return trio.current_time() - began

    def open_ports(self) -> list[int]:
        """Those of its ports that somebody listens on."""
        return [port for port in self.ports if _is_open(port)]


def _is_open(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex((HOST, port)) == 0


def a_musivum(home: Path, database_url: str) -> Musivum:
    """One that was not started yet, at an address that is known already."""
    home.mkdir(parents=True)
    p2p, http = free_ports(2)
    peer_id = load_or_create_key(home / "musivum.key").peer_id
    args = ["serve", "--p2p", f"{HOST}:{p2p}", "--http", f"{HOST}:{http}", "--data", str(home)]
    args += ["--min-vram-mb", "0"]
    if database_url:
        args += ["--database-url", database_url]
    address = parse_peer(f"/ip4/{HOST}/tcp/{p2p}/p2p/{peer_id}")
    return Musivum("musivum.cli", tuple(args), home, address=address, ports=(p2p, http))


@dataclass
class Fleet:
    """Musivums of one mesh, and three workers that hold a toy between them."""

    directory: Path
    musivums: list[Musivum]
    workers: list[Program] = field(default_factory=list)
    nodes: list[PeerAddress] = field(default_factory=list)
    answer: list[int] = field(default_factory=list)
    """Token ids of the first answer: every other one is the same."""
    answers: int = 0

    @property
    def beat(self) -> float:
        """Seconds between two heartbeats of each node."""
        return BEAT

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
            args += ["--claim-mb", "64", "--context", "128", "--device", "cpu"]
            self.workers.append(Program("tessella.cli.worker", tuple(args), home))
            self.workers[-1].start()
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

    def wrong(self, listed: dict[str, dict[str, Any]]) -> list[str]:
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


OpenFleet = Callable[..., AbstractContextManager[Fleet]]


@pytest.fixture(scope="session")
def open_fleet() -> OpenFleet:
    """A function that runs a mesh of so many musivums, on one database, for a context."""

    @contextmanager
    def opened(directory: Path, musivums: int = 1, database_url: str = "") -> Iterator[Fleet]:
        homes = [directory / f"musivum-{number}" for number in range(musivums)]
        fleet = Fleet(directory, [a_musivum(home, database_url) for home in homes])
        try:
            trio.run(fleet.start)
            yield fleet
        finally:
            fleet.close()
            shutil.rmtree(directory)

    return opened


@dataclass
class Crowd:
    """Nodes that join, are listed, stay, and die without a word: a mesh that is never at rest.

    Each is the worker's own membership over a real host that listens, so it is dialled back.
    """

    musivums: list[PeerAddress]
    chance: random.Random
    acknowledged: set[PeerId] = field(default_factory=set)
    """Whose registration was answered with a range."""
    alive: dict[PeerId, trio.CancelScope] = field(default_factory=dict)
    """Those that were listed as ready, and live."""
    dead: set[PeerId] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)

    async def full(self) -> None:
        """Return once as many live as may."""
        with trio.fail_after(START_SECONDS):
            while len(self.alive) < CROWD:  # noqa: ASYNC110 - no event tells of it
                await trio.sleep(LOOK_SECONDS)

    async def run(self) -> None:
        """Let them come, until cancelled."""
        places = trio.Semaphore(CROWD)
        async with trio.open_nursery() as nursery:
            while True:
                await places.acquire()
                nursery.start_soon(self._one, places)
                await trio.sleep(COME_SECONDS)

    async def _one(self, places: trio.Semaphore) -> None:
        identity = Identity(self.chance.randbytes(32))
        try:
            async with open_host(identity, listen=[LISTEN]) as host:
                tracker = Tracker(host, identity, self.musivums)
                register = replace(
                    a_registration(host.address.addrs), model=ModelId("crowd"), claim_mb=64
                )
                member = Member(register, SMALL.layers, _news, _unmoved, lambda _: None)
                await self._live(identity.peer_id, Membership(tracker, member))
        except TessellaError as exc:
            if not is_away(exc):
                self.refused.append(f"{exc.code}: {exc}")
        finally:
            places.release()

    async def _live(self, peer_id: PeerId, membership: Membership) -> None:
        with trio.move_on_after(JOIN_SECONDS):
            layers = await membership.join()
            self.acknowledged.add(peer_id)
        if peer_id not in self.acknowledged:
            return
        with trio.CancelScope() as scope:
            await membership.ready(layers)
            self.alive[peer_id] = scope
            await membership.run()
        del self.alive[peer_id]

    def kill(self, count: int) -> None:
        """Some of them die, and say nothing."""
        for peer_id in self.chance.sample(sorted(self.alive), min(count, len(self.alive))):
            self.dead.add(peer_id)
            self.alive[peer_id].cancel()

    def lost(self, listed: dict[str, dict[str, Any]]) -> set[PeerId]:
        """Whose admission was acknowledged, and who is not listed."""
        return self.acknowledged - listed.keys()

    def undead(self, listed: dict[str, dict[str, Any]]) -> set[PeerId]:
        """Who is dead, and listed as one that serves."""
        return self.dead & _healthy(listed)

    def unheard(self, listed: dict[str, dict[str, Any]]) -> set[PeerId]:
        """Who serves, and is not listed as one that does."""
        return self.alive.keys() - _healthy(listed)


def _healthy(listed: dict[str, dict[str, Any]]) -> set[str]:
    return {peer for peer, row in listed.items() if row["status"] == NodeStatus.HEALTHY.value}


def _news() -> News:
    whole = LayerRange(0, SMALL.layers)
    return News(whole, Announce(NodeStatus.HEALTHY.value, queue_depth=0, step_ms=0.0))


def _unmoved(layers: LayerRange) -> None:
    if layers != _news().layers:
        raise Refused("nobody of a crowd moves")
