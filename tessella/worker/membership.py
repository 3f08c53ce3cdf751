"""Staying in the mesh: register, say ready, announce, come back after musivum forgot us, leave."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import trio

from tessella.core.errors import PeerGone, RemoteFailure, TessellaError, UnknownWorker
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    Announce,
    Assigned,
    Deregister,
    Ready,
    Register,
    ReportFailure,
)
from tessella.worker.tracker import Tracker

logger = logging.getLogger(__name__)

# A musivum that starts in the same minute is waited for; then the command says so and exits.
JOIN_SECONDS = 30.0
FIRST_RETRY = 0.5
LONGEST_RETRY = 15.0
LEAVE_TIMEOUT = 2.0
# Failures come in bursts, one a session; what does not fit is only not reported.
MAX_REPORTS_WAITING = 16


class Membership:
    """This node's row at musivum. `news` makes the heartbeat of the moment."""

    def __init__(self, tracker: Tracker, register: Register, news: Callable[[], Announce]) -> None:
        self._tracker = tracker
        self._register = register
        self._news = news
        self._heartbeat = LONGEST_RETRY
        self._put, self._reports = trio.open_memory_channel[ReportFailure](MAX_REPORTS_WAITING)

    async def join(self) -> LayerRange:
        """The range to load. Raises the refusal, or PeerGone after JOIN_SECONDS without answer."""
        wait = FIRST_RETRY
        give_up = trio.current_time() + JOIN_SECONDS
        while True:
            try:
                return await self._join_once()
            except PeerGone as exc:
                if trio.current_time() + wait > give_up:
                    raise
                logger.info("musivum does not answer, trying again: %s", exc)
            await trio.sleep(wait)
            wait = min(wait * 2, LONGEST_RETRY)

    async def _join_once(self) -> LayerRange:
        assigned = await self._tracker.call(self._register)
        if not isinstance(assigned, Assigned):
            raise RemoteFailure("protocol_error", "musivum assigned no layers", retry=False)
        self._heartbeat = assigned.heartbeat_seconds
        # From here on this is the range we hold: a musivum that forgot us is told so.
        self._register = replace(self._register, wanted=assigned.layers)
        return assigned.layers

    async def ready(self, layers: LayerRange) -> None:
        """Tell musivum that the range is served, joining again if it forgot us meanwhile."""
        try:
            await self._tracker.call(Ready(layers))
        except RemoteFailure as exc:
            if exc.code != UnknownWorker.code:
                raise
            await self._join_once()
            await self._tracker.call(Ready(layers))

    async def announce(self, layers: LayerRange) -> None:
        """Announce until cancelled. A musivum that is away is met again whenever it is back."""
        while True:
            await trio.sleep(self._heartbeat)
            try:
                await self._tracker.call(self._news())
            except RemoteFailure as exc:
                if exc.code == UnknownWorker.code:
                    await self._come_back(layers)
                else:
                    logger.warning("musivum refused a heartbeat: %s: %s", exc.code, exc)
            except TessellaError as exc:
                logger.info("no heartbeat went out: %s: %s", exc.code, exc)

    async def _come_back(self, layers: LayerRange) -> None:
        logger.info("musivum does not know us: registering again with layers %s", layers)
        try:
            await self._join_once()
            await self._tracker.call(Ready(layers))
        except TessellaError as exc:
            logger.warning("registering again failed: %s: %s", exc.code, exc)

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
                await self._tracker.aclose()
            except TessellaError as exc:
                logger.info("left without a goodbye: %s: %s", exc.code, exc)
