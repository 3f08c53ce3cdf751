"""The first stage: it takes a request, opens a chain, and feeds it its answer token by token."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import trio

from p2p.peers import Host
from tessella.core.completions import CompletionRequest
from tessella.core.errors import (
    BadRequest,
    ContextTooLong,
    OutOfTurn,
    PeerGone,
    RemoteFailure,
    UnknownModel,
)
from tessella.core.ids import SESSION_ID_BYTES, PeerId, SessionId
from tessella.core.messages import Begun, Delta, Done, Message, Open, Progress, Token
from tessella.core.messages import Stage as Place
from tessella.core.progress import PROGRESS_SECONDS, Watch
from tessella.core.session import Lease
from tessella.engine.tokenizer import Tokenizer
from tessella.worker.availability import find_chain
from tessella.worker.downstream import Downstream
from tessella.worker.nurseries import open_conversation
from tessella.worker.sessions import Sessions
from tessella.worker.stage import Onward, Stage
from tessella.worker.tail import Tail
from tessella.worker.terms import Served, Terms, pack_ids
from tessella.worker.tokens import Inbox, TokenDesk
from tessella.worker.trust import Neighbourhood
from tessella.worker.upstream import REPORT_TIMEOUT

# A tokenizer reads about a million characters a second: below this the loop waits 20 ms at most,
# above it a thread is worth its while.
INLINE_CHARS = 16 * 1024

Say = Callable[[Message], Awaitable[None]]
"""Sends one message of the answer to the client. Raises PeerGone if it left."""

Task = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Entry:
    """Answers requests through chains that begin here."""

    host: Host
    served: Served
    sessions: Sessions
    around: Neighbourhood
    desk: TokenDesk
    tokenizer: Tokenizer
    eos_ids: frozenset[int]
    prefill_chunk: int

    async def answer(self, request: CompletionRequest, say: Say) -> None:
        """Say Begun, a Delta a token, and Done.

        Cancelling it, or any error, frees the session on every stage of the chain.
        """
        started = trio.current_time()
        terms = await self._terms(request)
        opened, key = terms.opened, (terms.opened.session_id, terms.opened.epoch)
        with (
            self.around.directory.using([place.peer_id for place in opened.chain[1:]]),
            self.desk.expect(*key, opened.chain[-1].peer_id) as inbox,
            self.sessions.open(terms.lease, terms.stage.layers) as stage,
        ):
            begun = Begun(key[0].hex(), request.model, len(terms.prompt), 0, opened.chain)
            answer = _Answer(terms, stage, inbox, say, begun, started, self.prefill_chunk)
            if terms.after is None:
                tail = Tail(
                    terms, self.tokenizer, self.eos_ids, self.around.counters, inbox.deliver
                )
                done = await answer.run(tail)
            else:
                done = await self._answer_through(answer, terms, inbox)
        self.around.counters.answers += 1
        # Said last: whoever asks again at once finds the room that this answer took.
        await say(done)

    async def _answer_through(self, answer: _Answer, terms: Terms, inbox: Inbox) -> Done:
        onward = Downstream(terms.opened, terms.dtype, self.around)

        async def deliver(token: Token) -> None:
            with onward.trust:
                await inbox.deliver(token)

        complete = False
        try:
            await onward.connect()
            beside = (partial(onward.listen, deliver), onward.guard)
            done = await answer.run(onward, onward.watch, beside)
            complete = True
            await onward.end()
            return done
        except (PeerGone, RemoteFailure):
            self.around.directory.forget_age()
            raise
        finally:
            if not complete:
                await onward.cancel()

    async def _terms(self, request: CompletionRequest) -> Terms:
        if request.model != self.served.model:
            raise UnknownModel(f"this node serves {self.served.model}, not {request.model[:80]!r}")
        prompt = await self._prompt(request)
        room = self.served.context - len(prompt)
        if not prompt:
            raise BadRequest("the prompt has no tokens")
        if room < 1:
            raise ContextTooLong(
                f"the prompt is {len(prompt)} tokens, this node's context is {self.served.context}"
            )
        wanted = min(request.sampling.max_tokens, room)
        sampling = replace(request.sampling, max_tokens=wanted)
        opened = self._open(request, prompt, await self._chain(), len(prompt) + wanted)
        opened = replace(opened, sampling=sampling.encode())
        lease = Lease(opened.session_id, opened.epoch, opened.capacity)
        return Terms(opened, lease, self.served.shard.dtype, prompt, sampling)

    async def _prompt(self, request: CompletionRequest) -> list[int]:
        text = len(request.prompt) + sum(len(message.content) for message in request.messages)
        if text <= INLINE_CHARS:
            return self._encode(request)
        return await trio.to_thread.run_sync(self._encode, request)

    def _encode(self, request: CompletionRequest) -> list[int]:
        if request.messages:
            return self.tokenizer.encode_chat([asdict(message) for message in request.messages])
        return self.tokenizer.encode(request.prompt)

    async def _chain(self) -> tuple[Place, ...]:
        rows = await self.around.directory.rows()
        return find_chain(rows, self.served, first=self._ourselves)

    @property
    def _ourselves(self) -> PeerId:
        return self.host.address.peer_id

    def _open(
        self,
        request: CompletionRequest,
        prompt: Sequence[int],
        chain: tuple[Place, ...],
        capacity: int,
    ) -> Open:
        session_id = SessionId(secrets.token_bytes(SESSION_ID_BYTES))
        grant, signature = self.desk.grant(session_id, 0, chain[-1].peer_id)
        return Open(
            session_id=session_id,
            epoch=0,
            model=request.model,
            contract=self.served.contract,
            dtype=self.served.shard.dtype.value,
            chain=chain,
            place=0,
            capacity=capacity,
            prompt=pack_ids(prompt),
            sampling=request.sampling.encode(),
            entry_addrs=self.host.address.addrs,
            grant=grant,
            grant_signature=signature,
        )


class _Answer:
    """One request on its way: prefill in chunks, then a step for every token that comes back."""

    def __init__(
        self,
        terms: Terms,
        stage: Stage,
        inbox: Inbox,
        say: Say,
        begun: Begun,
        started: float,
        chunk: int,
    ) -> None:
        self._terms = terms
        self._stage = stage
        self._inbox = inbox
        self._say = say
        self._begun = begun
        self._started = started
        self._chunk = chunk

    async def run(
        self, onward: Onward, watch: Watch | None = None, beside: Sequence[Task] = ()
    ) -> Done:
        """Run to the end of the answer; what remains to be said then.

        `watch` is that of the next stage, if there is one; `beside` run as long as this does.
        """
        async with open_conversation() as nursery:
            for task in beside:
                nursery.start_soon(task)
            await self._say(self._begun)
            nursery.start_soon(self._report, watch)
            # Beside the answer, so that a tail that fails early is heard during the prefill.
            nursery.start_soon(self._prefill, onward)
            token, count = await self._next(0), 1
            first = trio.current_time() - self._started
            while not token.reason:
                if watch is not None:
                    watch.rest()
                await self._say(_delta(token))
                await self._stage.run_ids([token.token_id], token.position, True, onward)
                token, count = await self._next(count), count + 1
            # The last token is here: whatever becomes of the chain spoils nothing any more.
            nursery.cancel_scope.cancel()
        await self._say(_delta(token))
        return Done(token.reason, count, 0.0, first, 0.0, trio.current_time() - self._started)

    async def _next(self, count: int) -> Token:
        """The token after `count` others. Raises RemoteFailure for one that cannot be it."""
        token = await self._inbox.next()
        position = len(self._terms.prompt) + count
        fits = count + 1 < self._terms.sampling.max_tokens or token.reason
        if token.position != position or not 0 <= token.token_id < self._stage.vocab or not fits:
            said = f"the tail answered {token.token_id} at {token.position}, not at {position}"
            raise RemoteFailure(OutOfTurn.code, said, retry=True)
        return token

    async def _report(self, watch: Watch | None) -> None:
        """Tell the client each second how far the chain is, so that it knows slow from dead."""
        opened = self._terms.opened
        while True:
            await trio.sleep(PROGRESS_SECONDS)
            counter, done = self._stage.counter, self._stage.lease.held
            if watch is not None:
                counter, done = counter + watch.counter, watch.done
            # A cancelled send breaks the stream, and the last of the answer must go down it.
            limit = trio.current_time() + REPORT_TIMEOUT
            with trio.CancelScope(shield=True, deadline=limit):
                await self._say(Progress(opened.session_id, opened.epoch, counter, done))

    async def _prefill(self, onward: Onward) -> None:
        prompt = self._terms.prompt
        for start in range(0, len(prompt), self._chunk):
            ids = prompt[start : start + self._chunk]
            last = start + len(ids) == len(prompt)
            await self._stage.run_ids(ids, start, last, onward)


def _delta(token: Token) -> Delta:
    return Delta(token.text, token.token_id, token.logprob, token.top)
