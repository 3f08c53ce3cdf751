"""The program: one nursery, read top to bottom. It has no logic of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, TypeAlias

import httpx
import trio

from musivum.admission import Admission
from musivum.audit_room import AuditRoom, NoAudits
from musivum.audits.desk import Mesh, open_audits, run_audits
from musivum.clocks import Clock, Clocks
from musivum.config import MusivumConfig
from musivum.doors.answers import Answers
from musivum.doors.ledger import LedgerDoor
from musivum.doors.settling import Settling
from musivum.doors.status import StatusPage
from musivum.doors.tracker import Rooms, Tracker
from musivum.federation.asking import Caller
from musivum.federation.pull import Books as Taking
from musivum.federation.room import Federation, issuers
from musivum.ledger import Ledger, run_ledger
from musivum.metrics import Metrics
from musivum.nodes.books import Keeper, open_books
from musivum.operator import AdminGate, Operator
from musivum.pages.ledger import LedgerPages
from musivum.pages.mesh import Pages
from musivum.placing.assigning import Assigner
from musivum.placing.grants import Grants
from musivum.placing.moves import Moves
from musivum.placing.node_calls import Http
from musivum.placing.orchestrator import Orchestrator
from musivum.placing.probes import Probes
from musivum.routes import http_app
from p2p.background import background_tasks
from p2p.dht import DhtSettings, open_dht
from p2p.peers import Host
from tessella.core.addresses import PeerAddress
from tessella.core.identity import Identity
from tessella.core.messages import LEDGER, STATUS, TRACKER
from tessella.core.settlement import Caps
from tessella.core.tiers import MICRO
from tessella.web.client import open_client
from tessella.web.limits import RateLimits
from tessella.web.server import ServeLimits, serve_http

# A node keeps one tracker stream and opens a second when the first is stuck.
TRACKER_STREAMS, TRACKER_STREAMS_PER_PEER = 12_000, 8
# The same, and a client asks for a ticket before each of its requests.
LEDGER_STREAMS, LEDGER_STREAMS_PER_PEER = 12_000, 8
STATUS_STREAMS, STATUS_STREAMS_PER_PEER = 256, 8


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a musivum can be reached."""

    peer: PeerAddress
    http: tuple[str, ...]
    """URLs, without a path."""


# The stubs that libp2p brings along are older than trio's own `TaskStatus`.
Started: TypeAlias = "trio.TaskStatus[Listening]"  # type: ignore[name-defined, unused-ignore]


@dataclass(frozen=True, slots=True)
class Opened:
    """What the doors of a musivum lead to."""

    rooms: Rooms
    page: StatusPage
    metrics: Metrics


async def serve(
    host: Host,
    identity: Identity,
    config: MusivumConfig,
    *,
    store: Keeper,
    clock: Clock,
    token: str = "",
    task_status: Started = trio.TASK_STATUS_IGNORED,
) -> None:
    """Be a musivum on this host until cancelled; started with where it can be reached.

    `identity` is the host's own; `clock` gives seconds since 1970, and is compared with what
    nodes sign; `token` is the operator's, and without one nobody is. Host and store are the
    caller's, to close afterwards. Raises PortInUse and BadAddress for what cannot be listened on,
    and whatever the store raises while it is read.
    """
    async with (
        open_rooms(host, identity, config, store=store, clock=clock, token=token) as opened,
        trio.open_nursery() as nursery,
    ):
        urls: tuple[str, ...] = ()
        if config.http and not config.bootstrap_only:
            app = http_app(opened.rooms, opened.page, opened.metrics, _rate(config))
            limits = ServeLimits(exempt=config.exempt)
            urls = await nursery.start(partial(serve_http, app, config.http, limits=limits))
        task_status.started(Listening(host.address, urls))
        await trio.sleep_forever()


@asynccontextmanager
async def open_rooms(
    host: Host,
    identity: Identity,
    config: MusivumConfig,
    *,
    store: Keeper,
    clock: Clock,
    token: str = "",
    to_nodes: httpx.AsyncBaseTransport | None = None,
) -> AsyncIterator[Opened]:
    """A musivum with its libp2p door, until the context is left; it takes what `serve` does.

    The HTTP door is the caller's to open. `to_nodes` is for tests, in place of the network. Raises
    whatever the store raises while it is read.
    """
    books = await open_books(config, store, Clocks(clock))
    swarm = DhtSettings(
        bootstrap=config.bootstrap, snapshot=config.snapshot, allow_private=config.allow_private
    )
    async with (
        open_dht(host, settings=swarm, clock=clock),
        open_client(to_nodes) as client,
        background_tasks() as nursery,
    ):
        http = Http(client, config.allow_private)
        probes = Probes(host, books.roster, http)
        room = Orchestrator(config, books, probes)
        assigner = Assigner(host, identity, books.roster, clock, http)
        moves = Moves(books.roster, room, assigner.push, heal_seconds=config.heal_seconds)
        pages = Pages(host, config, books)
        caps = Caps(worker=config.mint_daily_cap * MICRO)
        listed = issuers(identity, config.federation)
        ledger = Ledger(identity, store, clock, caps, lambda: listed)
        listed |= await ledger.keepers()
        federation = Federation(
            Caller(identity, client),
            Taking(ledger, store),
            clock,
            config.federation,
            config.federation_pull_seconds,
        )
        audits: AuditRoom = NoAudits()
        if not config.bootstrap_only:
            mesh = Mesh(identity, books.roster, books.reputations, books.clocks)
            audits = opened = await open_audits(mesh, ledger, room.deregister)
            ledger.on_settled = opened.hear
            nursery.start_soon(run_audits, opened)
        rooms = Rooms(
            books=books,
            admission=Admission(
                allow=config.allow, block=config.block, started=clock(), barred=audits.barred
            ),
            orchestrator=room,
            pages=pages,
            answers=Answers(pages, books.roster),
            operator=Operator(books, moves, ledger, audits),
            gate=AdminGate(token),
            ledger=ledger,
            ledger_pages=LedgerPages(ledger),
            settling=Settling(ledger, config.exempt),
            grants=Grants(identity, config, books, ledger, audits),
            audits=audits,
            federation=federation,
        )
        tracker = Tracker(config, rooms)
        ledger_door = LedgerDoor(config, rooms, tracker.counts)
        page = StatusPage(host, books, tracker, audits, started=trio.current_time())
        host.serve(STATUS, page.answer, streams=STATUS_STREAMS, per_peer=STATUS_STREAMS_PER_PEER)
        if not config.bootstrap_only:
            nursery.start_soon(probes.run, room.lost)
            nursery.start_soon(_expire_silent, host, room, config.expiry_seconds)
            nursery.start_soon(moves.run)
            nursery.start_soon(run_ledger, ledger, clock)
            nursery.start_soon(federation.run)
            host.serve(
                TRACKER,
                tracker.answer,
                streams=TRACKER_STREAMS,
                per_peer=TRACKER_STREAMS_PER_PEER,
            )
            host.serve(
                LEDGER,
                ledger_door.answer,
                streams=LEDGER_STREAMS,
                per_peer=LEDGER_STREAMS_PER_PEER,
            )
        yield Opened(rooms, page, Metrics(host, rooms, tracker))


def _rate(config: MusivumConfig) -> RateLimits:
    return RateLimits(
        per_second=config.requests_per_second, burst=config.request_burst, exempt=config.exempt
    )


async def _expire_silent(host: Host, room: Orchestrator, seconds: float) -> NoReturn:
    while True:
        await trio.sleep(seconds)
        room.expire(frozenset(host.connected()))
