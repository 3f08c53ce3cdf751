"""Sessions that a neighbour opens here: a middle stage or the tail of somebody's chain."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from p2p.streams import FrameStream
from tessella.core.errors import BadTensor, PeerGone, PeerReset
from tessella.core.ids import PeerId
from tessella.core.messages import Cancel, End, Open, Park
from tessella.core.session import EntryLost, NeighbourLost
from tessella.engine.tokenizer import Tokenizer
from tessella.worker.downstream import Downstream
from tessella.worker.nurseries import open_conversation
from tessella.worker.sessions import Sessions
from tessella.worker.stage import Stage
from tessella.worker.tail import Tail
from tessella.worker.terms import Served, Terms, read_terms
from tessella.worker.tokens import check_grant
from tessella.worker.trust import Neighbourhood
from tessella.worker.upstream import Farewell, Upstream
from tessella.worker.way_back import WayBack


@dataclass(frozen=True, slots=True)
class Hops:
    """Runs the sessions of one shard."""

    ourselves: PeerId
    served: Served
    sessions: Sessions
    around: Neighbourhood
    tokenizer: Tokenizer
    eos_ids: frozenset[int]

    async def run(self, opened: Open, stream: FrameStream) -> None:
        """One session to its end. Errors leave: the stage before is told their code."""
        terms = read_terms(opened, self.served, self.ourselves, stream.peer_id)
        tickets = self.around.tickets
        if (signed := tickets.read(opened.ticket, opened.ticket_signature)) is not None:
            # Before the ticket counts as used: a stage before us may make up a session.
            check_grant(opened, signed.chain[0].peer_id)
        ticketed = tickets.check(opened)
        bend = self.around.bend_of(opened, ticketed.ticket, stream.peer_id)
        witness = self.around.billing.witness(opened, ticketed.ticket)
        upstream = Upstream(stream, terms, self.served.shard.shape.hidden, self.around)
        with self.sessions.open(
            terms.lease, terms.stage.layers, stream.peer_id, ticketed.tier, witness
        ) as stage:
            stage.bend = bend
            if terms.after is None:
                await self._run_tail(terms, stage, upstream)
            else:
                await self._run_middle(terms, stage, upstream)

    async def _run_middle(self, terms: Terms, stage: Stage, upstream: Upstream) -> None:
        onward = Downstream(terms.opened, terms.dtype, self.around, stage.witness)
        farewell: Farewell | None = None

        async def forward() -> None:
            # Beside the reading: who gives the session up meanwhile does not wait for a dial.
            await onward.connect()
            nursery.start_soon(onward.listen, upstream.say)
            nursery.start_soon(onward.guard)
            await _compute(stage, upstream, onward)

        def progress() -> tuple[int, int]:
            done = onward.watch.done if onward.watch.waiting else stage.lease.held
            return stage.counter + onward.watch.counter, done

        try:
            with ExitStack() as then:
                async with open_conversation() as nursery:
                    nursery.start_soon(forward)
                    nursery.start_soon(upstream.report, progress)
                    farewell = await self._read(terms, stage, upstream, then)
                    nursery.cancel_scope.cancel()
            if isinstance(farewell, Park):
                await onward.end(farewell.seconds)
            elif isinstance(farewell, End):
                await onward.end()
        finally:
            if not isinstance(farewell, End | Park):
                await onward.cancel()
        await self.around.billing.bill(stage)

    async def _run_tail(self, terms: Terms, stage: Stage, upstream: Upstream) -> None:
        way = WayBack(terms, self.around.directory, upstream)
        bill = partial(self.around.billing.bill, stage)
        tail = Tail(terms, self.tokenizer, self.eos_ids, self.around.counters, way.say, bill)
        farewell: Farewell | None = None
        try:
            with ExitStack() as then:
                async with open_conversation() as nursery:
                    nursery.start_soon(way.run)
                    nursery.start_soon(tail.prepare)
                    nursery.start_soon(_compute, stage, upstream, tail)
                    nursery.start_soon(upstream.report, lambda: (stage.counter, stage.lease.held))
                    farewell = await self._read(terms, stage, upstream, then)
                    nursery.cancel_scope.cancel()
        finally:
            await way.close(isinstance(farewell, End | Park))

    async def _read(
        self, terms: Terms, stage: Stage, upstream: Upstream, then: ExitStack
    ) -> Farewell:
        """Take what comes until the session ends; how it ended.

        A stage is parked when `then` is left: no step of it runs any more, and others may have it.
        """
        try:
            farewell = await upstream.read()
        except PeerReset:
            # Only a live neighbour resets: it gave the session up, whatever it could still say.
            stage.lease = stage.lease.close(Cancel)
            raise
        except PeerGone:
            if terms.opened.place == 1:
                stage.lease = stage.lease.close(EntryLost)
            else:
                then.callback(self.sessions.park, stage, NeighbourLost, self.around.hop_timeout)
            raise
        if isinstance(farewell, Park):
            then.callback(self.sessions.park, stage, Park, farewell.seconds)
        else:
            stage.lease = stage.lease.close(type(farewell))
        return farewell


async def _compute(stage: Stage, upstream: Upstream, onward: Downstream | Tail) -> None:
    """Run what was queued, in order, until cancelled."""
    while True:
        hidden = await upstream.next()
        try:
            await stage.run_hidden(hidden, onward)
        except BadTensor as exc:
            upstream.blame(exc)
            raise
