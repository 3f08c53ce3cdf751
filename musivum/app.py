"""The program: one nursery, read top to bottom. It has no logic of its own."""

from __future__ import annotations

import logging
from typing import NoReturn, TypeAlias

import trio

from musivum.config import MusivumConfig
from musivum.probes import Probes
from musivum.roster import Roster
from musivum.status import StatusPage
from musivum.tracker import Clock, Tracker
from p2p.dht import DhtSettings, open_dht
from p2p.peers import Host
from tessella.core.addresses import PeerAddress
from tessella.core.messages import STATUS, TRACKER

logger = logging.getLogger(__name__)

# A node keeps one tracker stream and opens a second when the first is stuck.
TRACKER_STREAMS, TRACKER_STREAMS_PER_PEER = 12_000, 8
STATUS_STREAMS, STATUS_STREAMS_PER_PEER = 256, 8
# How late, at most, silence is noticed.
EXPIRY_SECONDS = 1.0


# The stubs that libp2p brings along are older than trio's own `TaskStatus`.
Started: TypeAlias = "trio.TaskStatus[PeerAddress]"  # type: ignore[name-defined, unused-ignore]


async def serve(
    host: Host,
    config: MusivumConfig,
    *,
    clock: Clock,
    task_status: Started = trio.TASK_STATUS_IGNORED,
) -> None:
    """Be a musivum on this host until cancelled; started with where it can be reached.

    `clock` gives seconds since 1970, and is compared with what nodes sign. The host is the
    caller's, to close afterwards.
    """
    roster = Roster(config)
    probes = Probes(host, roster)
    tracker = Tracker(config, roster, probes, clock=clock)
    page = StatusPage(host, roster, tracker, started=trio.current_time())
    swarm = DhtSettings(bootstrap=config.bootstrap, snapshot=config.snapshot)
    async with open_dht(host, settings=swarm, clock=clock), trio.open_nursery() as nursery:
        nursery.start_soon(probes.run)
        nursery.start_soon(_expire_silent, host, roster)
        if not config.bootstrap_only:
            host.serve(
                TRACKER,
                tracker.answer,
                streams=TRACKER_STREAMS,
                per_peer=TRACKER_STREAMS_PER_PEER,
            )
        host.serve(STATUS, page.answer, streams=STATUS_STREAMS, per_peer=STATUS_STREAMS_PER_PEER)
        task_status.started(host.address)


async def _expire_silent(host: Host, roster: Roster) -> NoReturn:
    while True:
        await trio.sleep(EXPIRY_SECONDS)
        for decision in roster.expire(trio.current_time(), frozenset(host.connected())):
            logger.info("%s: %s", type(decision).__name__, decision)
