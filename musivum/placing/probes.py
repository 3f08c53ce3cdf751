"""Whether a peer is where it says it is: a dial-back before it is listed, and after a complaint.

Where no dial leads to it, a challenge over HTTP is the same (see `node_calls`). A report is a
reason to look, never a verdict.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import trio

from musivum.nodes.node import Node
from musivum.nodes.roster import Roster
from musivum.placing.listing import Shown, wants_challenge
from musivum.placing.node_calls import Http, prove_url
from p2p.peers import Host, Proof
from tessella.core.addresses import PeerAddress
from tessella.core.errors import (
    PeerGone,
    Refused,
    RemoteError,
    TessellaError,
    TooManyRequests,
)
from tessella.core.ids import PeerId
from tessella.core.messages import STATUS, AskStatus
from tessella.core.peers import NodeStatus

logger = logging.getLogger(__name__)

# Reports of one node in a minute: a chain has few neighbours, and they do not all fail.
MAX_REPORTS = 6
REPORT_WINDOW = 60.0
# Accused nodes that wait to be looked at, and how many are looked at side by side.
MAX_WAITING = 64
PROBERS = 4
# Each of the three steps of a probe: dial, stream, answer.
PROBE_TIMEOUT = 5.0
# Registrations that are dialled back or challenged side by side, and that may wait for their turn.
# A whole mesh registers again within a heartbeat of a musivum that lost its database.
PROOFS = 32
MAX_PROOFS_WAITING = 4096
PROOF_TIMEOUT = 5.0

Lost = Callable[[PeerId, PeerId], None]
"""Takes who complained, and the node that does not answer."""


class Probes:
    """Looks at nodes. Start `run` once."""

    def __init__(self, host: Host, roster: Roster, http: Http) -> None:
        self._host = host
        self._roster = roster
        self._http = http
        self._reports: dict[PeerId, deque[float]] = {}
        self._waiting: set[PeerId] = set()
        accusation = trio.open_memory_channel[tuple[PeerId, PeerId]](MAX_WAITING)
        self._accused, self._to_probe = accusation
        self._proofs = trio.CapacityLimiter(PROOFS)
        self._wanted = 0
        # Of each peer that wants to be dialled back: one proof holds it, the others wait for it.
        self._turns: dict[PeerId, trio.Lock] = {}

    async def prove(
        self, peer_id: PeerId, addrs: tuple[str, ...], api_url: str, *, dial_back: bool = True
    ) -> Shown:
        """At which of its addresses a peer's key answers, and if that leaves it open, whether it
        answers at its URL. Without `dial_back` the addresses are believed.

        Takes PROOF_TIMEOUT and CHALLENGE_SECONDS at most, once it is its turn. Raises
        TooManyRequests where too many wait for that.
        """
        async with self._turn(peer_id), self._proofs:
            proof = Proof(addrs, ())
            if dial_back:
                peer = PeerAddress(peer_id, addrs)
                proof = await self._host.prove(peer, timeout=PROOF_TIMEOUT)
            shown = Shown(addrs=proof.proven, failures=proof.failures, ips=proof.ips)
            if not wants_challenge(api_url, shown.addrs):
                return shown
            at = await prove_url(self._http, self._host.address.peer_id, peer_id, api_url)
        if at.ip is None:
            return replace(shown, url_failure=at.failure)
        # A tunnel is shared: it counts for a node only where nothing else does.
        return replace(shown, url=True, ips=shown.ips if shown.addrs else (at.ip,))

    @asynccontextmanager
    async def _turn(self, peer_id: PeerId) -> AsyncIterator[None]:
        """A peer's proofs wait for each other first: who is slow to answer has one of all places,
        and not as many as it has streams. Raises TooManyRequests."""
        if self._wanted >= PROOFS + MAX_PROOFS_WAITING:
            raise TooManyRequests(f"{MAX_PROOFS_WAITING} registrations wait to be dialled back")
        self._wanted += 1
        turn = self._turns.setdefault(peer_id, trio.Lock())
        try:
            async with turn:
                yield
        finally:
            self._wanted -= 1
            if not turn.locked():
                self._turns.pop(peer_id, None)

    def report(self, reporter: PeerId, accused: PeerId, now: float) -> bool:
        """Have a node looked at; False if it is already, is offline or is not known.

        Raises TooManyRequests beyond what one reporter, or all, may have looked at.
        """
        self._count(reporter, now)
        node = self._roster.find(accused)
        if node is None or node.status is NodeStatus.OFFLINE or accused in self._waiting:
            return False
        try:
            self._accused.send_nowait((reporter, accused))
        except trio.WouldBlock:
            raise TooManyRequests(f"{MAX_WAITING} reported nodes wait to be looked at") from None
        self._waiting.add(accused)
        return True

    def _count(self, reporter: PeerId, now: float) -> None:
        # Reporters are nodes, so this table is as bounded as the roster once the old ones are out.
        for peer_id in [who for who, times in self._reports.items() if _over(times, now)]:
            del self._reports[peer_id]
        times = self._reports.setdefault(reporter, deque(maxlen=MAX_REPORTS))
        if len(times) == MAX_REPORTS and times[0] > now - REPORT_WINDOW:
            raise TooManyRequests(f"more than {MAX_REPORTS} reports in {REPORT_WINDOW:g} s")
        times.append(now)

    async def run(self, lost: Lost) -> None:
        """Look at accused nodes until cancelled; whoever does not answer is `lost`."""
        async with trio.open_nursery() as nursery:
            for _ in range(PROBERS):
                nursery.start_soon(self._probe_accused, lost)

    async def _probe_accused(self, lost: Lost) -> None:
        async for reporter, accused in self._to_probe:
            node = self._roster.find(accused)
            reason = await self._failure(node) if node else None
            if reason is not None:
                logger.info("reported node does not answer: %s: %s", accused, reason)
                lost(reporter, accused)
            self._waiting.discard(accused)

    async def _failure(self, node: Node) -> str | None:
        """Why the node counts as lost; None if it answers anything at all to AskStatus, or if it
        was we who could not ask. A node that is listed by its URL alone has to answer there."""
        peer_id, row = node.row.peer_id, node.row
        if not row.addrs:
            ourselves = self._host.address.peer_id
            return (await prove_url(self._http, ourselves, peer_id, row.api_url)).failure or None
        try:
            await self._host.connect(PeerAddress(peer_id, row.addrs), timeout=PROBE_TIMEOUT)
            stream = await self._host.open_stream(peer_id, STATUS, timeout=PROBE_TIMEOUT)
            async with stream:
                await stream.send(AskStatus(), timeout=PROBE_TIMEOUT)
                await stream.receive(timeout=PROBE_TIMEOUT)
        except (PeerGone, RemoteError, Refused) as exc:
            return f"{exc.code}: {exc}"
        except TessellaError as exc:
            # Of a stranger's bytes a library may make an error of its own, and that is no verdict.
            logger.warning("could not look at %s: %s: %s", peer_id, exc.code, exc)
        return None


def _over(times: deque[float], now: float) -> bool:
    return not times or times[-1] <= now - REPORT_WINDOW
