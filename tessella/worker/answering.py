"""One request on its way: prefill in chunks, then a step for every token that comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import trio

from tessella.core.errors import OutOfTurn, RemoteFailure
from tessella.core.messages import Begun, Delta, Done, Message, Progress, Token
from tessella.core.progress import PROGRESS_SECONDS, Watch
from tessella.worker.nurseries import open_conversation
from tessella.worker.stage import Onward, Stage
from tessella.worker.terms import Terms
from tessella.worker.tokens import Inbox
from tessella.worker.upstream import REPORT_TIMEOUT

Say = Callable[[Message], Awaitable[None]]
"""Sends one message of the answer to the client. Raises PeerGone if it left."""

Task = Callable[[], Awaitable[None]]

REASONS = ("stop", "length")
"""Why an answer ends."""


@dataclass(slots=True, kw_only=True)
class Answering:
    """The entry's work for one answer. Times are on trio's clock."""

    terms: Terms
    stage: Stage
    inbox: Inbox
    say: Say
    begun: Begun
    started: float
    """When the request arrived."""
    chunk: int
    """Positions of a prefill's piece."""
    ids: list[int] = field(default_factory=list)
    """The answer so far."""
    _queued: float = 0.0
    _waited: float = 0.0

    async def run(
        self, onward: Onward, watch: Watch | None = None, beside: Sequence[Task] = ()
    ) -> Done:
        """Run to the end of the answer; what remains to be said then.

        `watch` is that of the next stage, if there is one; `beside` run as long as this does.
        """
        async with open_conversation() as nursery:
            for task in beside:
                nursery.start_soon(task)
            await self.say(self.begun)
            nursery.start_soon(self._report, watch)
            # Beside the answer, so that a tail that fails early is heard during the prefill.
            nursery.start_soon(self._prefill, onward)
            token = await self._next()
            first = trio.current_time() - self.started
            while not token.reason:
                if watch is not None:
                    watch.rest()
                await self.say(_delta(token))
                await self.stage.run_ids([token.token_id], token.position, True, onward)
                handed_on = trio.current_time()
                token = await self._next()
                self._waited += trio.current_time() - handed_on
            # The last token is here: whatever becomes of the chain spoils nothing any more.
            nursery.cancel_scope.cancel()
        await self.say(_delta(token))
        return Done(
            reason=token.reason,
            completion_tokens=len(self.ids),
            queue_seconds=self._queued + self.stage.first_wait,
            first_token_seconds=first,
            hops_seconds=self._waited,
            total_seconds=trio.current_time() - self.started,
        )

    async def _next(self) -> Token:
        """The next token. Raises RemoteFailure for one that cannot be it."""
        token, position = await self.inbox.next(), len(self.terms.prompt) + len(self.ids)
        if token.position != position or not self._can_be_next(token):
            said = f"the tail answered {token.token_id} at {token.position}, not at {position}"
            raise RemoteFailure(OutOfTurn.code, said, retry=True)
        self.ids.append(token.token_id)
        return token

    def _can_be_next(self, token: Token) -> bool:
        told = (token.token_id, *(each.token_id for each in token.top))
        ends = token.reason in REASONS
        goes_on = not token.reason and len(self.ids) + 1 < self.terms.sampling.max_tokens
        return all(0 <= each < self.stage.vocab for each in told) and (ends or goes_on)

    async def _report(self, watch: Watch | None) -> None:
        """Tell the client each second how far the chain is, so that it knows slow from dead."""
        opened = self.terms.opened
        while True:
            await trio.sleep(PROGRESS_SECONDS)
            counter, done = self.stage.counter, self.stage.lease.held
            if watch is not None:
                counter, done = counter + watch.counter, watch.done
            # A cancelled send breaks the stream, and the last of the answer must go down it.
            limit = trio.current_time() + REPORT_TIMEOUT
            with trio.CancelScope(shield=True, deadline=limit):
                await self.say(Progress(opened.session_id, opened.epoch, counter, done))

    async def _prefill(self, onward: Onward) -> None:
        prompt = self.terms.prompt
        self._queued = trio.current_time() - self.started
        for start in range(self.begun.cached_tokens, len(prompt), self.chunk):
            ids = prompt[start : start + self.chunk]
            last = start + len(ids) == len(prompt)
            await self.stage.run_ids(ids, start, last, onward)


def _delta(token: Token) -> Delta:
    return Delta(token.text, token.token_id, token.logprob, token.top)
