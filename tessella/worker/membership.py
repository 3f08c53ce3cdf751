"""Staying in the mesh: register, say ready, announce, come back after musivum forgot us, leave."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import trio

from tessella.core.errors import PeerGone, RemoteFailure, TessellaError, UnknownWorker
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
from tessella.core.peers import PeerRow
from tessella.worker.tracker import Tracker

logger = logging.getLogger(__name__)

T = TypeVar("T")

# A musivum that starts in the same minute is waited for; then the command says so and exits.
JOIN_SECONDS = 30.0
FIRST_RETRY = 0.5
LONGEST_RETRY = 15.0
LEAVE_TIMEOUT = 2.0
# Failures come in bursts, one a session; what does not fit is only not reported.
MAX_REPORTS_WAITING = 16
# Whatever musivum says, a node is neither a load test nor forgotten between two heartbeats.
MIN_HEARTBEAT, MAX_HEARTBEAT = 0.1, 300.0


class Membership:
    """This node's row at musivum. `news` makes the heartbeat of the moment."""

    def __init__(self, tracker: Tracker, register: Register, news: Callable[[], Announce]) -> None:
        self._tracker = tracker
        self._register = register
        self._news = news
        self._heartbeat = LONGEST_RETRY
        self._listed = False
        self._put, self._reports = trio.open_memory_channel[ReportFailure](MAX_REPORTS_WAITING)

    async def join(self) -> LayerRange:
        """The range to load. Raises the refusal, or PeerGone after JOIN_SECONDS without answer."""
        return await _try_again(self._join_once, JOIN_SECONDS)

    async def _join_once(self) -> LayerRange:
        assigned = await self._tracker.call(self._register)
        if not isinstance(assigned, Assigned):
            raise RemoteFailure("protocol_error", "musivum assigned no layers", retry=False)
        self._heartbeat = min(max(assigned.heartbeat_seconds, MIN_HEARTBEAT), MAX_HEARTBEAT)
        # From here on this is the range we hold: a musivum that forgot us is told so.
        self._register = replace(self._register, wanted=assigned.layers)
        return assigned.layers

    async def ready(self, layers: LayerRange) -> None:
        """Have musivum list us, joining again if it forgot us. Raises its refusal.

        A musivum that is away is waited for: what was loaded is not thrown away over that.
        """
        await _try_again(partial(self._be_listed, layers), math.inf)

    async def rows(self, model: ModelId) -> list[PeerRow]:
        """The nodes of a model, as musivum lists them. Raises PeerGone, RemoteFailure."""
        return await self._tracker.peers(model)

    async def run(self, layers: LayerRange) -> None:
        """Announce, and send what is reported, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.announce, layers)
            nursery.start_soon(self.send_reports)

    async def announce(self, layers: LayerRange) -> None:
        """Announce until cancelled. A musivum that is away is met again whenever it is back."""
        while True:
            await trio.sleep(self._heartbeat)
            try:
                await self._announce_once(layers)
            except TessellaError as exc:
                logger.warning("no heartbeat was taken: %s: %s", exc.code, exc)

    async def _announce_once(self, layers: LayerRange) -> None:
        if self._listed and not await self._forgot_us(self._news()):
            return
        self._listed = False
        await self._be_listed(layers)

    async def _be_listed(self, layers: LayerRange) -> None:
        if await self._forgot_us(Ready(layers)):
            logger.info("musivum does not know us: registering again with layers %s", layers)
            await self._join_once()
            await self._tracker.call(Ready(layers))
        self._listed = True

    async def _forgot_us(self, said: Announce | Ready) -> bool:
        try:
            await self._tracker.call(said)
        except RemoteFailure as exc:
            if exc.code != UnknownWorker.code:
                raise
            return True
        return False

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


async def _try_again(attempt: Callable[[], Awaitable[T]], seconds: float) -> T:
    """What `attempt` returns. While musivum is away it is tried again, for so many seconds."""
    wait = FIRST_RETRY
    give_up = trio.current_time() + seconds
    while True:
        try:
            return await attempt()
        except PeerGone as exc:
            left = give_up - trio.current_time()
            if left <= 0:
                raise
            logger.info("musivum does not answer, trying again: %s", exc)
        await trio.sleep(min(wait, left))
        wait = min(wait * 2, LONGEST_RETRY)
