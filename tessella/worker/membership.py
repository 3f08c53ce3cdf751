"""Staying in the mesh: register, say ready, announce, come back after musivum forgot us, leave."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from functools import partial

import trio

from tessella.core.errors import (
    BadSignature,
    ClaimTooSmall,
    ClockSkew,
    Refused,
    RemoteFailure,
    TessellaError,
    UnknownWorker,
    WorkerNotAuthorized,
)
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    Announce,
    Assigned,
    Deregister,
    Ready,
    Register,
    ReportFailure,
)
from tessella.core.peers import NodeStatus, PeerRow
from tessella.worker.mesh import Member
from tessella.worker.retries import LONGEST_RETRY, keep_going, try_again
from tessella.worker.tracker import Tracker, is_away

logger = logging.getLogger(__name__)

# A musivum that starts in the same minute is waited for; then the command says so and exits.
JOIN_SECONDS = 30.0
LEAVE_TIMEOUT = 2.0
# Failures come in bursts, one a session; what does not fit is only not reported.
MAX_REPORTS_WAITING = 16
# Whatever musivum says, a node is neither a load test nor forgotten between two heartbeats.
MIN_HEARTBEAT, MAX_HEARTBEAT = 0.1, 300.0
# What musivum says that does not know us, or by another range than we hold.
_FORGOT = frozenset({UnknownWorker.code, Refused.code})
# What the operator of a node that is refused can do. musivum says what is wrong, and does not know
# by which words it was set.
_WAYS_OUT = {
    ClaimTooSmall.code: "vram_mb is the claim; a lower context_size or parallel_slots needs less",
    WorkerNotAuthorized.code: "nothing is wrong with this node: ask who runs the mesh to let it in",
    ClockSkew.code: "that is the clock of this machine",
    BadSignature.code: "its key is another than the one this node calls, or something on the way "
    "changes what is sent",
}


class Membership:
    """This node's row at musivum, made of the member's news."""

    def __init__(
        self, tracker: Tracker, member: Member, join_seconds: float = JOIN_SECONDS
    ) -> None:
        """`join_seconds` is how long a musivum that does not answer is waited for."""
        self._tracker = tracker
        self._join_seconds = join_seconds
        self._member = member
        self._heartbeat = LONGEST_RETRY
        # The range that musivum was told we serve; None while it was told of none.
        self._listed: LayerRange | None = None
        self._listing = trio.Lock()
        self._changed = trio.Event()
        self._put, self._reports = trio.open_memory_channel[ReportFailure](MAX_REPORTS_WAITING)

    async def join(self) -> LayerRange:
        """The range to load. Raises the refusal, or PeerGone where nobody answers in time."""
        return await try_again(
            partial(self._register, self._member.register), self._join_seconds, is_away
        )

    async def _register(self, register: Register) -> LayerRange:
        try:
            assigned = await self._tracker.call(register)
        except RemoteFailure as exc:
            if (way := _WAYS_OUT.get(exc.code)) is None:
                raise
            raise RemoteFailure(exc.code, f"{exc}; {way}", retry=exc.retry) from exc
        if not isinstance(assigned, Assigned):
            raise RemoteFailure("protocol_error", "musivum assigned no layers", retry=False)
        self._listed = None
        self._beat(assigned)
        return assigned.layers

    def _beat(self, assigned: Assigned) -> None:
        self._heartbeat = min(max(assigned.heartbeat_seconds, MIN_HEARTBEAT), MAX_HEARTBEAT)

    async def ready(self, layers: LayerRange) -> None:
        """Have musivum list us, joining again if it forgot us. Raises its refusal.

        A musivum that is away, or cannot take it just then, is waited for: what was loaded is not
        thrown away over that.
        """
        await try_again(partial(self._be_listed, layers), math.inf, _may_be_said_again)

    @property
    def way(self) -> str:
        """How musivum was reached last: `libp2p` or `http`."""
        return self._tracker.way

    async def rows(self, model: ModelId) -> list[PeerRow]:
        """The nodes of a model, as musivum lists them. Raises PeerGone, RemoteFailure."""
        return await self._tracker.peers(model)

    def changed(self) -> None:
        """The next heartbeat is due."""
        self._changed.set()

    async def run(self) -> None:
        """Announce, and send what is reported, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_going, self.announce, self._member.failed)
            nursery.start_soon(keep_going, self.send_reports, self._member.failed)

    async def announce(self) -> None:
        """Announce until cancelled. A musivum that is away is met again whenever it is back."""
        while True:
            with trio.move_on_after(self._heartbeat):
                await self._changed.wait()
            self._changed = trio.Event()
            try:
                await self._announce_once()
            except TessellaError as exc:
                logger.warning("no heartbeat was taken: %s: %s", exc.code, exc)
                self._member.failed(exc)

    async def _announce_once(self) -> None:
        news = self._member.news()
        serves = news.said.status == NodeStatus.HEALTHY.value
        if not serves:
            self._listed = None
        elif self._listed != news.layers:
            await self._be_listed(news.layers)
            return
        if await self._forgot_us(news.said):
            await self._come_back()
            if serves:
                await self._be_listed(news.layers)

    async def _be_listed(self, layers: LayerRange) -> None:
        async with self._listing:
            if self._listed == layers:
                return  # the heartbeat did it meanwhile
            # One that was started again in the middle of a move may know us by another range.
            if await self._forgot_us(Ready(layers)):
                await self._come_back()
                await self._say(Ready(layers))
            self._listed = layers

    async def _come_back(self) -> None:
        held = self._member.news().layers
        logger.info("musivum does not know us: registering again with layers %s", held)
        self._consider(await self._register(replace(self._member.register, wanted=held)))

    async def _forgot_us(self, said: Announce | Ready) -> bool:
        try:
            await self._say(said)
        except RemoteFailure as exc:
            if exc.code not in _FORGOT:
                raise
            return True
        return False

    async def _say(self, said: Announce | Ready) -> None:
        """Say it; musivum may answer that it wants another range held."""
        answer = await self._tracker.call(said)
        if isinstance(answer, Assigned):
            self._beat(answer)
            self._consider(answer.layers)

    def _consider(self, layers: LayerRange) -> None:
        try:
            self._member.assigned(layers)
        except Refused as exc:
            logger.info("musivum wants layers %s held, and that is refused: %s", layers, exc)

    def report(self, peer: PeerId, error: TessellaError) -> None:
        """Tell musivum, when there is time, that a peer failed us."""
        try:
            self._put.send_nowait(ReportFailure(peer, error.code))
        except trio.WouldBlock:
            logger.info("a failure report did not fit: %s: %s", peer, error.code)

    async def send_reports(self) -> None:
        """Send what is reported until cancelled."""
        async for report in self._reports:
            try:
                await self._tracker.call(report)
            except TessellaError as exc:
                logger.info("a failure report was not taken: %s: %s", exc.code, exc)

    async def leave(self) -> None:
        """Say goodbye if musivum is there to hear it. Bounded by LEAVE_TIMEOUT."""
        with trio.CancelScope(shield=True), trio.move_on_after(LEAVE_TIMEOUT):
            try:
                await self._tracker.call(Deregister())
            except TessellaError as exc:
                logger.info("left without a goodbye: %s: %s", exc.code, exc)
            await self._tracker.aclose()


def _may_be_said_again(error: TessellaError) -> bool:
    return is_away(error) or (isinstance(error, RemoteFailure) and error.retry)
