"""The first stage: it takes a request, opens a chain, and feeds it its answer token by token."""

from __future__ import annotations

import secrets
from array import array
from dataclasses import dataclass, field
from functools import partial

import trio

from p2p.peers import Host
from tessella.core.completions import CompletionRequest
from tessella.core.errors import PeerGone, RemoteFailure, TessellaError, UnknownModel
from tessella.core.ids import SESSION_ID_BYTES, PeerId, SessionId
from tessella.core.messages import Begun, Delta, Done, Message, Open, Park, Token
from tessella.core.session import MAX_PARK_SECONDS, Lease
from tessella.core.tiers import Tier
from tessella.worker.answering import Answering, Say
from tessella.worker.chains import Chains, Found
from tessella.worker.downstream import Downstream
from tessella.worker.kept import Conversations, Kept
from tessella.worker.prompts import Asked, Prompts
from tessella.worker.sessions import Sessions
from tessella.worker.stage import Stage
from tessella.worker.tail import Tail
from tessella.worker.terms import Served, Terms, pack_ids
from tessella.worker.tickets import SignedTicket
from tessella.worker.tokens import Inbox, TokenDesk
from tessella.worker.trust import Neighbourhood


@dataclass(frozen=True, slots=True)
class Entry:
    """Answers requests through chains that begin here."""

    host: Host
    served: Served
    sessions: Sessions
    around: Neighbourhood
    desk: TokenDesk
    prompts: Prompts
    eos_ids: frozenset[int]
    prefill_chunk: int
    api_url: str = ""
    """Where this node answers over HTTP."""
    kept: Conversations = field(default_factory=Conversations)

    async def answer(
        self, request: CompletionRequest, say: Say, ticket: SignedTicket | None = None
    ) -> None:
        """Say Begun, a Delta a token, and Done; by the client's `ticket`, if it brought one.

        A session with a name goes on with the KV that its last request left, where every stage
        still holds it; where one does not, that shows before the first token, and the answer
        begins anew, with another Begun. Cancelling it, or any error, frees the session on every
        stage of the chain. Raises BadTicket for a ticket that does not cover the request.
        """
        started = trio.current_time()
        if request.model != self.served.model:
            raise UnknownModel(f"this node serves {self.served.model}, not {request.model[:80]!r}")
        if ticket is not None:
            self.kept.check_unused(request.session, ticket.ticket.request_id)
            await self._chains.check_ours(ticket)
        asked = await self.prompts.read(request, ticket.tier if ticket else Tier.LEECH)
        found = await self._chains.find(
            asked.positions, ticket, self.kept.request_id(request.session)
        )
        kept = self.kept.take(request.session) if request.session else None
        client = _Client(say)
        past = SessionId(secrets.token_bytes(SESSION_ID_BYTES)), -1
        if kept is not None and self._goes_on(kept, found):
            try:
                return await self._answer(request, asked, kept, found.ticket, client, started)
            except TessellaError:
                if client.answered or client.lost:
                    raise
            # The session goes on without its past: its ticket is good for no other.
            past = kept.session_id, kept.epoch + 1
            if ticket is None and found.ticket is not None:
                found = await self._chains.find(asked.positions)
        begins = Kept(*past, self._chains.chain(found), ())
        await self._answer(request, asked, begins, found.ticket, client, started)

    def _goes_on(self, kept: Kept, found: Found) -> bool:
        if found.ticket is not None and not kept.request_id:
            return False  # nobody saw what was computed, so that no proof can build on it
        here = self.sessions.parked((kept.session_id, kept.epoch), self._ourselves)
        return here is not None and found.leads_through(kept.chain)

    async def _answer(
        self,
        request: CompletionRequest,
        asked: Asked,
        before: Kept,
        ticket: SignedTicket | None,
        client: _Client,
        started: float,
    ) -> None:
        """One answer, after what a session held `before`."""
        terms = self._terms(request, asked, before, ticket)
        opened, key = terms.opened, (terms.opened.session_id, terms.opened.epoch)
        cached, tail = before.shared(asked.prompt), opened.chain[-1].peer_id
        ticketed = self.around.tickets.check(opened)
        billing = self.around.billing
        witness = billing.witness(opened, ticketed.ticket)
        bend = self.around.bend_of(opened, ticketed.ticket, self._ourselves)
        with (
            self.around.directory.using([place.peer_id for place in opened.chain[1:]]),
            self.desk.expect(*key, tail) as inbox,
            self.sessions.open(
                terms.lease, terms.stage.layers, self._ourselves, ticketed.tier, witness
            ) as stage,
        ):
            stage.bend = bend
            begun = Begun(
                key[0].hex(), request.model, len(terms.prompt), cached, opened.chain, ticketed.word
            )
            answering = Answering(
                terms=terms,
                stage=stage,
                inbox=inbox,
                say=client.say,
                begun=begun,
                started=started,
                chunk=self.prefill_chunk,
            )
            keep = MAX_PARK_SECONDS if request.session else 0.0
            done = await self._run(answering, inbox, keep)
            if keep:
                self._keep(request.session, answering, stage, ticket)
            await billing.bill(stage)
        self.around.counters.answers += 1
        # Said last: whoever asks again at once finds the room that this answer took.
        await client.say(done)

    async def _run(self, answering: Answering, inbox: Inbox, keep_seconds: float) -> Done:
        terms = answering.terms
        if terms.after is not None:
            return await self._run_through(answering, inbox, keep_seconds)
        tokenizer, counters = self.prompts.tokenizer, self.around.counters
        tail = Tail(terms, tokenizer, self.eos_ids, counters, inbox.deliver)
        return await answering.run(tail, beside=(tail.prepare,))

    async def _run_through(self, answering: Answering, inbox: Inbox, keep_seconds: float) -> Done:
        terms, witness = answering.terms, answering.stage.witness
        onward = Downstream(terms.opened, terms.dtype, self.around, witness)

        async def deliver(token: Token) -> None:
            with onward.trust:
                await inbox.deliver(token)

        complete = False
        try:
            await onward.connect()
            beside = (partial(onward.listen, deliver), onward.guard)
            done = await answering.run(onward, onward.watch, beside)
            complete = True
            await onward.end(keep_seconds)
            return done
        except (PeerGone, RemoteFailure):
            self.around.directory.forget_age()
            raise
        finally:
            if not complete:
                await onward.cancel()

    def _keep(
        self, name: str, answering: Answering, stage: Stage, ticket: SignedTicket | None
    ) -> None:
        terms = answering.terms
        self.sessions.park(stage, Park, MAX_PARK_SECONDS)
        # The last token was chosen, and no stage has computed it. Packed: kept for minutes.
        ids = array("I", [*terms.prompt, *answering.ids][: stage.lease.held])
        opened, request_id = terms.opened, ticket.ticket.request_id if ticket is not None else b""
        kept = Kept(opened.session_id, opened.epoch, opened.chain, ids, request_id)
        self.kept.keep(name, kept)

    @property
    def _ourselves(self) -> PeerId:
        return self.host.address.peer_id

    @property
    def _chains(self) -> Chains:
        return Chains(self._ourselves, self.served, self.around)

    def _terms(
        self,
        request: CompletionRequest,
        asked: Asked,
        before: Kept,
        ticket: SignedTicket | None,
    ) -> Terms:
        session_id, epoch, chain = before.session_id, before.epoch + 1, before.chain
        grant, signature = self.desk.grant(session_id, epoch, chain[-1].peer_id)
        opened = Open(
            session_id=session_id,
            epoch=epoch,
            model=request.model,
            contract=self.served.contract,
            dtype=self.served.shard.dtype.value,
            chain=chain,
            place=0,
            capacity=asked.positions,
            prompt=pack_ids(asked.prompt),
            sampling=asked.sampling.encode(),
            entry_addrs=self.host.address.addrs,
            entry_url=self.api_url,
            grant=grant,
            grant_signature=signature,
            ticket=ticket.payload if ticket is not None else b"",
            ticket_signature=ticket.signature if ticket is not None else b"",
        )
        lease = Lease(session_id, epoch, opened.capacity)
        return Terms(opened, lease, self.served.shard.dtype, asked.prompt, asked.sampling)


@dataclass(slots=True)
class _Client:
    """Whoever reads the answer, and what became of it."""

    tell: Say
    answered: bool = False
    """Whether a piece of the answer went out: what is said is not begun anew."""
    lost: bool = False

    async def say(self, message: Message) -> None:
        """Send one message. Raises what `tell` raises."""
        self.answered = self.answered or isinstance(message, Delta | Done)
        try:
            await self.tell(message)
        except TessellaError:
            self.lost = True
            raise
