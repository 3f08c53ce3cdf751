"""One stream to the musivums of a mesh, opened again when it is lost.

The musivum that answered last is asked first; when it is gone, or says that another has its place,
the next one is asked at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import trio

from p2p.peers import Host
from p2p.streams import FrameStream
from tessella.core.addresses import PeerAddress
from tessella.core.errors import (
    Busy,
    PeerGone,
    PeerSilent,
    PeerUnreachable,
    Refused,
    RemoteFailure,
    TessellaError,
)
from tessella.core.messages import Fail, Message

logger = logging.getLogger(__name__)

MakeMessage = Callable[[], Message]

CONNECT_TIMEOUT = 5.0
ANSWER_TIMEOUT = 10.0
# What a musivum says that does not keep the mesh at this moment: another one does.
ELSEWHERE = frozenset({Busy.code, "standby"})


def is_away(error: TessellaError) -> bool:
    """Whether an error says no more than that no musivum is there to answer."""
    if isinstance(error, RemoteFailure):
        return error.code in ELSEWHERE
    return isinstance(error, PeerGone)


class MusivumStream:
    """Asks over one protocol, one question at a time: who asks meanwhile waits.

    Each is bounded by CONNECT_TIMEOUT and ANSWER_TIMEOUT at every musivum. `aclose` ends the
    stream.
    """

    def __init__(self, host: Host, musivums: Sequence[PeerAddress], protocol: str) -> None:
        """At least one musivum."""
        self._host = host
        # The one that answered last comes first.
        self._musivums = tuple(musivums)
        self._protocol = protocol
        self._stream: FrameStream | None = None
        self._turn = trio.Lock()

    async def ask(self, make: MakeMessage) -> Message:
        """The answer to what `make` makes, which is called for every attempt.

        Raises RemoteFailure with musivum's code if the answer is no, PeerGone if there is none.
        """
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

    async def aclose(self) -> None:
        """End the stream, if one is open."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()

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
        peer_id = musivum.peer_id
        try:
            return await self._host.open_stream(peer_id, self._protocol, timeout=CONNECT_TIMEOUT)
        except Refused as exc:
            # One that starts listens before it serves, if only for a moment.
            raise PeerUnreachable(str(exc)) from exc
