"""Clients: one request a stream, answered by this node's chain or by one that begins elsewhere."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from p2p.streams import FrameStream
from tessella.core.completions import CompletionRequest
from tessella.core.errors import (
    BadFrame,
    OutOfTurn,
    PeerClosed,
    PeerGone,
    PeerReset,
    RemoteFailure,
)
from tessella.core.messages import COMPLETE, Begun, Cancel, Complete, Delta, Done, Fail, Progress
from tessella.core.peers import choose_entry
from tessella.core.tiers import Tier
from tessella.worker.answering import REASONS, Say
from tessella.worker.nurseries import open_conversation
from tessella.worker.serving import Serving
from tessella.worker.state import Loaded
from tessella.worker.tickets import Presented, SignedTicket
from tessella.worker.trust import Neighbourhood

# A client that connects and says nothing holds a stream no longer than this.
REQUEST_TIMEOUT = 30.0
# What an entry may take for a word of its answer: it says how far it is each second.
WORD_TIMEOUT = 25.0


@dataclass(frozen=True, slots=True)
class Clients:
    """What answers requests, and the handler of completion streams."""

    around: Neighbourhood
    serving: Serving

    async def serve(self, stream: FrameStream) -> None:
        """Answer one request. A client that cancels, or goes away, ends its session at once."""
        message = await stream.receive(REQUEST_TIMEOUT)
        if not isinstance(message, Complete):
            raise OutOfTurn(f"{type(message).__name__} in place of a request")
        async with open_conversation() as nursery:

            async def wait_for_goodbye() -> None:
                try:
                    goodbye = await stream.receive()
                except PeerGone:
                    goodbye = None
                nursery.cancel_scope.cancel()
                if goodbye is not None and not isinstance(goodbye, Cancel):
                    raise OutOfTurn(f"{type(goodbye).__name__} during an answer")

            nursery.start_soon(wait_for_goodbye)
            brought = Presented(message.ticket, message.ticket_signature, stream.peer_id)
            await self.answer(CompletionRequest.decode(message.request), stream.send, brought)
            nursery.cancel_scope.cancel()

    async def answer(
        self, request: CompletionRequest, say: Say, brought: Presented | None = None
    ) -> None:
        """Say Begun, a Delta a token, Done, and Progress in between.

        Cancelling it frees the session on every stage. Raises what the entry raises, RemoteFailure
        with its code where another node is the entry, and for a ticket that was `brought` what
        `Tickets.admit` raises: such a request is answered here or nowhere.
        """
        ticket = self.around.tickets.admit(brought) if brought is not None else None
        if not await self.serving.lend(partial(_answer_here, request, say, ticket)):
            # Without the shard, which may go meanwhile.
            await self._relay(request, say)

    async def _relay(self, request: CompletionRequest, say: Say) -> None:
        """Pass a request on to a node that can be an entry, and its answer back."""
        directory = self.around.directory
        entry = choose_entry(directory.loaded(await directory.rows())).peer_id
        trust = self.around.trust(entry)
        with trust:
            onward = await directory.stream_to(entry, COMPLETE)
        async with onward:
            # Where it was refused already, the reason is there to be read.
            with trust, suppress(PeerClosed, PeerReset):
                await onward.send(Complete(request.encode()))
            while True:
                with trust:
                    answer = await onward.receive(WORD_TIMEOUT)
                    if not isinstance(answer, Begun | Delta | Done | Fail | Progress):
                        raise OutOfTurn(f"{type(answer).__name__} in an answer")
                    _check(answer)
                if isinstance(answer, Fail):
                    raise RemoteFailure(answer.code, answer.text, retry=answer.retry)
                await say(answer)
                if isinstance(answer, Done):
                    return


def _check(answer: Begun | Delta | Done | Fail | Progress) -> None:
    """Raises BadFrame for a name, tier, token id or end that is none."""
    match answer:
        case Begun():
            names = (answer.request_id, *(stage.peer_id for stage in answer.chain))
            fits = all(each.isascii() and each.isalnum() for each in names)
            fits = fits and answer.tier in ("", *Tier)
        case Delta():
            ids = (answer.token_id, *(each.token_id for each in answer.top))
            fits = all(0 <= each < 2**32 for each in ids)
        case Done():
            fits = answer.reason in REASONS
        case _:
            return
    if not fits:
        raise BadFrame(f"a {type(answer).__name__} that no entry says")


async def _answer_here(
    request: CompletionRequest, say: Say, ticket: SignedTicket | None, loaded: Loaded
) -> bool:
    """Answer, if this node can be the entry; whether it can. A ticket says whether it is."""
    if ticket is None and not loaded.entry.served.shard.holds_embedding:
        return False
    await loaded.entry.answer(request, say, ticket)
    return True
