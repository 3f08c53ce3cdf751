"""Whether an accused peer still answers: a report is a reason to look, never a verdict."""

from __future__ import annotations

import logging
from collections import deque

import trio

from musivum.roster import Node, Roster
from p2p.peers import Host
from tessella.core.addresses import PeerAddress
from tessella.core.errors import PeerGone, Refused, RemoteError, TooManySessions
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


class Probes:
    """Looks at accused nodes. Start `run` once."""

    def __init__(self, host: Host, roster: Roster) -> None:
        self._host = host
        self._roster = roster
        self._reports: dict[PeerId, deque[float]] = {}
        self._waiting: set[PeerId] = set()
        self._accused, self._to_probe = trio.open_memory_channel[PeerId](MAX_WAITING)

    def report(self, reporter: PeerId, accused: PeerId, now: float) -> None:
        """Have a node looked at, unless it is already, is offline or is not known.

        Raises UnknownWorker for a reporter that is no node here, Refused for one that accuses
        itself, and TooManySessions beyond what one reporter, or all, may have looked at.
        """
        self._roster.node(reporter)
        if accused == reporter:
            raise Refused("a node that reports itself may deregister instead")
        self._count(reporter, now)
        node = self._roster.find(accused)
        if node is None or node.status is NodeStatus.OFFLINE or accused in self._waiting:
            return
        try:
            self._accused.send_nowait(accused)
        except trio.WouldBlock:
            raise TooManySessions(f"{MAX_WAITING} reported nodes wait to be looked at") from None
        self._waiting.add(accused)

    def _count(self, reporter: PeerId, now: float) -> None:
        # Reporters are nodes, so this table is as bounded as the roster once the old ones are out.
        for peer_id in [who for who, times in self._reports.items() if _over(times, now)]:
            del self._reports[peer_id]
        times = self._reports.setdefault(reporter, deque(maxlen=MAX_REPORTS))
        if len(times) == MAX_REPORTS and times[0] > now - REPORT_WINDOW:
            raise TooManySessions(f"more than {MAX_REPORTS} reports in {REPORT_WINDOW:g} s")
        times.append(now)

    async def run(self) -> None:
        """Look at accused nodes until cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(PROBERS):
                nursery.start_soon(self._probe_accused)

    async def _probe_accused(self) -> None:
        async for accused in self._to_probe:
            await self._probe(accused)
            self._waiting.discard(accused)

    async def _probe(self, accused: PeerId) -> None:
        node = self._roster.find(accused)
        reason = await self._failure(node) if node else None
        if reason is not None:
            logger.info("reported node does not answer: %s: %s", accused, reason)
            self._roster.lost(accused, trio.current_time())

    async def _failure(self, node: Node) -> str | None:
        """Why the node counts as lost; None if it answers anything at all to AskStatus."""
        peer_id = node.row.peer_id
        try:
            await self._host.connect(PeerAddress(peer_id, node.row.addrs), timeout=PROBE_TIMEOUT)
            stream = await self._host.open_stream(peer_id, STATUS, timeout=PROBE_TIMEOUT)
            async with stream:
                await stream.send(AskStatus(), timeout=PROBE_TIMEOUT)
                await stream.receive(timeout=PROBE_TIMEOUT)
        except (PeerGone, RemoteError, Refused) as exc:
            return f"{exc.code}: {exc}"
        return None


def _over(times: deque[float], now: float) -> bool:
    return not times or times[-1] <= now - REPORT_WINDOW
