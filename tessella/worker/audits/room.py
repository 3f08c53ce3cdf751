"""All that one node has to do with audits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NoReturn

import trio

from p2p.peers import Host
from tessella.core.contracts import contract_of
from tessella.core.errors import TessellaError
from tessella.core.frames import MIB
from tessella.core.layers import LayerRange
from tessella.core.messages import AUDIT, AskCredits
from tessella.worker.audits.auditor import AskLedger, Auditor
from tessella.worker.audits.canary import Canary, CanaryMode
from tessella.worker.audits.keeper import AUDIT_STREAMS, AUDIT_STREAMS_PER_PEER, Keeper
from tessella.worker.audits.papers import Basis
from tessella.worker.audits.ring import Ring
from tessella.worker.ground import Ground
from tessella.worker.model import Model

logger = logging.getLogger(__name__)

# musivum is asked about as often as it hears from us anyway.
BEAT_SECONDS = 10.0
# How often rows that were kept long enough are looked for.
EXPIRE_SECONDS = 60.0


class Audits:
    """The ring, the keeper, the auditor and the canary of one node."""

    def __init__(
        self,
        model: Model,
        ground: Ground,
        layers: Callable[[], LayerRange | None],
    ) -> None:
        """`layers` are those that the node serves at a moment; None while it serves none."""
        config, checkpoint = model.config, model.checkpoint
        issuers = tuple(musivum.peer_id for musivum in config.musivum)
        ourselves = ground.identity.peer_id
        self.ring = Ring(config.audit_ring_mb * MIB)
        self.canary = Canary(CanaryMode(config.canary_mode), ground.identity, ground.clock)
        self._layers = layers
        self._keeper = Keeper(ourselves, issuers, self.ring, ground.clock)
        self._auditor = Auditor(
            Basis(
                host=ground.host,
                issuers=issuers,
                model=config.model,
                contract=contract_of(checkpoint.shape),
                checkpoint=checkpoint,
                device=model.device,
                compute=ground.compute,
                clock=ground.clock,
                layers=layers,
            )
        )
        # Who answers wrongly itself is not asked about others.
        self._audits = config.audits and not self.canary.mode.is_listed

    def serve(self, host: Host) -> None:
        """Show what is kept to whom musivum orders it for."""
        host.serve(
            AUDIT, self._keeper.serve, streams=AUDIT_STREAMS, per_peer=AUDIT_STREAMS_PER_PEER
        )

    async def run(self, ask: AskLedger | None) -> NoReturn:
        """Keep what is young, and with a musivum to `ask` audit and mark, until cancelled."""
        self.canary.announce()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._expire)
            if ask is not None:
                nursery.start_soon(self._beat, ask)
                nursery.start_soon(self.canary.run, ask)
            await trio.sleep_forever()

    async def _expire(self) -> NoReturn:
        while True:
            await trio.sleep(EXPIRE_SECONDS)
            self.ring.expire()

    async def _beat(self, ask: AskLedger) -> NoReturn:
        """An audit a beat, if there is one; then a rest as long as it took."""
        while True:
            began = trio.current_time()
            if self._layers() is not None:
                await self._audit(ask)
            took = trio.current_time() - began
            await trio.sleep(max(BEAT_SECONDS, took))

    async def _audit(self, ask: AskLedger) -> None:
        try:
            if self._audits:
                await self._auditor.once(ask)
            elif self.canary.mode is CanaryMode.WATERMARK:
                # Only to know whether somebody is there to be told of marks.
                await ask(AskCredits())
            else:
                return
            self.canary.reached()
        except TessellaError as exc:
            logger.info("no audit: %s: %s", exc.code, exc)
