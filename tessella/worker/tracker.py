"""musivum, from our side: signed calls over one stream, opened again when it is lost.

A mesh may have several. The one that answered last is asked first; when it is gone, or says that
another has its place, the next one is asked at once.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import trio

from p2p.peers import Host
from p2p.streams import FrameStream
from tessella.core.addresses import PeerAddress
from tessella.core.call_rules import NONCE_BYTES
from tessella.core.errors import (
    Busy,
    OutOfTurn,
    PeerGone,
    PeerSilent,
    PeerUnreachable,
    Refused,
    RemoteFailure,
    TessellaError,
)
from tessella.core.identity import PURPOSE_TRACKER, Identity
from tessella.core.ids import ModelId
from tessella.core.messages import (
    TRACKER,
    Accepted,
    AskPeers,
    Assigned,
    Call,
    Fail,
    Message,
    Peers,
    Signed,
    seal,
)
from tessella.core.peers import PeerRow, decode_rows
from tessella.worker.musivum_http import HttpMusivum

logger = logging.getLogger(__name__)

MakeMessage = Callable[[], Message]
T = TypeVar("T")

CONNECT_TIMEOUT = 5.0
ANSWER_TIMEOUT = 10.0
# For how long HTTP, once it had to serve, is the first way.
HTTP_SECONDS = 60.0
# What a musivum says that does not keep the mesh at this moment: another one does.
ELSEWHERE = frozenset({Busy.code, "standby"})


def is_away(error: TessellaError) -> bool:
    """Whether an error says no more than that no musivum is there to answer."""
    if isinstance(error, RemoteFailure):
        return error.code in ELSEWHERE
    return isinstance(error, PeerGone)


class Tracker:
    """Calls to the musivums of one mesh. Calls wait for each other.

    Each is bounded by CONNECT_TIMEOUT and ANSWER_TIMEOUT at every musivum. `aclose` ends the
    stream.
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
        self._host = host
        self._identity = identity
        # The one that answered last comes first.
        self._musivums = tuple(musivums)
        self._clock = clock
        self._http = http
        # After a success over HTTP libp2p is tried again only then: a dead dial costs seconds.
        self._http_until = float("-inf")
        self._stream: FrameStream | None = None
        self._turn = trio.Lock()

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
        answer = await self._ask(lambda: self._signed(message))
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
        answer = await self._ask(lambda: AskPeers(model))
        if not isinstance(answer, Peers):
            raise OutOfTurn(f"{type(answer).__name__} from musivum for a list of peers")
        return decode_rows(answer.rows)

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
        """End the stream, if one is open."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()

    def _signed(self, message: Message) -> Signed:
        call = Call(
            peer_id=self._identity.peer_id,
            created=self._clock(),
            nonce=secrets.token_bytes(NONCE_BYTES),
            message=seal(message),
        )
        payload = seal(call)
        return Signed(payload, self._identity.sign(PURPOSE_TRACKER, payload))

    async def _ask(self, make: MakeMessage) -> Message:
        async with self._turn:
            order = self._musivums
            for turn in range(len(order)):
                self._musivums = order[turn:] + order[:turn]
                try:
                    return await self._ask_first(make)
                except TessellaError as exc:
                    if not is_away(exc):
                        raise
                    logger.info("%s does not answer: %s: %s", order[turn].peer_id, exc.code, exc)
                    failed = exc
                await self.aclose()
            self._musivums = order
            raise failed

    async def _ask_first(self, make: MakeMessage) -> Message:
        kept = self._stream is not None
        try:
            return await self._ask_once(make())
        except PeerSilent:
            raise
        except PeerGone:
            if not kept:
                raise
        # The stream was from before; musivum may have been restarted since. A nonce is used
        # once, so the message is made and signed again.
        return await self._ask_once(make())

    async def _ask_once(self, message: Message) -> Message:
        stream, self._stream = self._stream, None
        if stream is None:
            stream = await self._open(self._musivums[0])
        try:
            await stream.send(message, timeout=ANSWER_TIMEOUT)
            answer = await stream.receive(ANSWER_TIMEOUT)
        except BaseException:
            await stream.reset()
            raise
        self._stream = stream
        if isinstance(answer, Fail):
            raise RemoteFailure(answer.code, answer.text, retry=answer.retry)
        return answer

    async def _open(self, musivum: PeerAddress) -> FrameStream:
        await self._host.connect(musivum, timeout=CONNECT_TIMEOUT)
        try:
            return await self._host.open_stream(musivum.peer_id, TRACKER, timeout=CONNECT_TIMEOUT)
        except Refused as exc:
            # One that starts listens before it serves, if only for a moment.
            raise PeerUnreachable(str(exc)) from exc
