"""musivum, from our side: a node's calls to it, over libp2p or, where that does not lead, HTTP."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import trio

from p2p.peers import Host
from tessella.core.addresses import PeerAddress
from tessella.core.call_rules import NONCE_BYTES
from tessella.core.calls import sign_call
from tessella.core.errors import OutOfTurn, TessellaError
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.messages import (
    LEDGER,
    TRACKER,
    Accepted,
    AskPeers,
    Assigned,
    Message,
    Peers,
    Settle,
    Settled,
    Signed,
)
from tessella.core.peers import PeerRow, decode_rows
from tessella.core.proofs import SignedProof, pack_batch
from tessella.core.settlement import Outcome, decode_outcomes
from tessella.worker.musivum_http import HttpMusivum
from tessella.worker.musivum_ledger import BY_HTTP
from tessella.worker.musivum_stream import MusivumStream
from tessella.worker.musivum_stream import is_away as is_away

logger = logging.getLogger(__name__)

T = TypeVar("T")

# For how long HTTP, once it had to serve, is the first way.
HTTP_SECONDS = 60.0


class Tracker:
    """Calls to the musivums of one mesh. Calls of one kind wait for each other.

    Each is bounded in time at every musivum, as `MusivumStream` is. `aclose` ends the streams.
    """

    def __init__(
        self,
        host: Host,
        identity: Identity,
        musivums: Sequence[PeerAddress],
        clock: Callable[[], float] = time.time,
        http: HttpMusivum | None = None,
    ) -> None:
        """At least one musivum; `clock` gives the seconds since 1970 that calls are signed with.

        `http` is the way to one of them where libp2p leads to none.
        """
        self._identity = identity
        self._clock = clock
        self._http = http
        # After a success over HTTP libp2p is tried again only then: a dead dial costs seconds.
        self._http_until = float("-inf")
        self._membership = MusivumStream(host, musivums, TRACKER)
        self._ledger = MusivumStream(host, musivums, LEDGER)
        # A megabyte of proofs takes its time, and a client's ticket does not wait for it.
        self._proofs = MusivumStream(host, musivums, LEDGER)

    @property
    def way(self) -> str:
        """How musivum was reached last: `libp2p` or `http`."""
        return "http" if trio.current_time() < self._http_until else "libp2p"

    async def call(self, message: Message) -> Assigned | Accepted:
        """Sign a message, send it, and return musivum's answer.

        Raises RemoteFailure with musivum's code if the answer is no, PeerGone if there is none.
        """
        if self._http is not None:
            http = self._http
            return await self._either(partial(self._call, message), partial(http.call, message))
        return await self._call(message)

    async def _call(self, message: Message) -> Assigned | Accepted:
        answer = await self._membership.ask(partial(self._signed, message))
        if not isinstance(answer, Assigned | Accepted):
            raise OutOfTurn(f"{type(answer).__name__} from musivum for a call")
        return answer

    async def peers(self, model: ModelId) -> list[PeerRow]:
        """The nodes of a model, as musivum lists them. Raises as `call`."""
        if self._http is not None:
            http = self._http
            return await self._either(partial(self._peers, model), partial(http.peers, model))
        return await self._peers(model)

    async def _peers(self, model: ModelId) -> list[PeerRow]:
        answer = await self._membership.ask(lambda: AskPeers(model))
        if not isinstance(answer, Peers):
            raise OutOfTurn(f"{type(answer).__name__} from musivum for a list of peers")
        return decode_rows(answer.rows)

    async def ledger_call(self, message: Message) -> Message:
        """Sign a question about work and its pay, and return musivum's answer, whatever it is.

        For AskGrant, AskCredits, AskAudit, AuditReport and Marks; whoever asks sees whether it is
        an answer to that. Raises as `call`.
        """
        if self._http is not None and isinstance(message, BY_HTTP):
            http = self._http
            return await self._either(
                partial(self._ledger_call, message), partial(http.ledger, message)
            )
        return await self._ledger_call(message)

    async def _ledger_call(self, message: Message) -> Message:
        return await self._ledger.ask(partial(self._signed, message))

    async def settle(self, proofs: Sequence[SignedProof]) -> list[Outcome]:
        """What became of each proof, in their order, as musivum says. Raises as `call`, BadFrame.

        At most MAX_BATCH of them, in MAX_BATCH_BYTES.
        """
        if self._http is not None:
            http = self._http
            return await self._either(partial(self._settle, proofs), partial(http.settle, proofs))
        return await self._settle(proofs)

    async def _settle(self, proofs: Sequence[SignedProof]) -> list[Outcome]:
        answer = await self._proofs.ask(lambda: Settle(pack_batch(proofs)))
        if not isinstance(answer, Settled):
            raise OutOfTurn(f"{type(answer).__name__} from musivum for proofs")
        return decode_outcomes(answer.outcomes)

    async def _either(
        self, libp2p: Callable[[], Awaitable[T]], http: Callable[[], Awaitable[T]]
    ) -> T:
        """One way's answer; the other's where nobody is there to answer on the first."""
        ways = [libp2p, http]
        if self.way == "http":
            ways.reverse()
        try:
            answer, way = await ways[0](), ways[0]
        except TessellaError as exc:
            if not is_away(exc):
                raise
            logger.info("musivum does not answer on one way: %s: %s", exc.code, exc)
            answer, way = await ways[1](), ways[1]
        if way is libp2p:
            self._http_until = float("-inf")
        elif self.way == "libp2p":
            self._http_until = trio.current_time() + HTTP_SECONDS
        return answer

    async def aclose(self) -> None:
        """End the streams that are open."""
        for stream in (self._membership, self._ledger, self._proofs):
            await stream.aclose()

    def _signed(self, message: Message) -> Signed:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return sign_call(message, self._identity, self._clock(), nonce)
