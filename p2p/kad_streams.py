"""kad-dht's messages over a stream of bytes: send, receive, and whole conversations."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from p2p.kad_wire import KAD, MAX_ANSWER, KadMessage, Kind, MessageReader, encode
from p2p.peers import Host
from p2p.streams import READ_BYTES, ByteStream
from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadFrame, PeerClosed, PeerSilent
from tessella.core.frames import NeedData


class KadStream:
    """Messages to and from one peer. Who opened the stream below ends it."""

    def __init__(self, stream: ByteStream, cap: int) -> None:
        """`cap` is the longest message taken, in bytes."""
        self.peer_id = stream.peer_id
        self._stream = stream
        self._reader = MessageReader(cap)

    async def send(self, message: KadMessage) -> None:
        """Write one message. Raises PeerGone."""
        await self._stream.send_all(encode(message))

    async def receive(self) -> KadMessage | None:
        """The next message, or None where the peer finished. Raises PeerGone and BadFrame."""
        while True:
            message = self._reader.next()
            if not isinstance(message, NeedData):
                return message
            data = await self._stream.receive_some(READ_BYTES)
            if not data:
                self._reader.close()
                return None
            self._reader.feed(data)


async def converse(
    host: Host, peer: PeerAddress, questions: Sequence[KadMessage], timeout: float
) -> list[KadMessage]:
    """Connect, ask one question after another on one stream, and finish it.

    The answers are in the order of the questions; an ADD_PROVIDER has none. Raises PeerGone,
    PeerSilent after `timeout` seconds for all of it, Refused if the peer does not answer for the
    swarm, BadFrame if it answers anything else.
    """
    try:
        with trio.fail_after(timeout):
            await host.connect(peer, timeout=timeout)
            stream = await host.open_bytes(peer.peer_id, KAD, timeout=timeout)
            finished = False
            try:
                answers = await _ask(KadStream(stream, MAX_ANSWER), questions)
                await stream.aclose()
                finished = True
            finally:
                if not finished:
                    with trio.CancelScope(shield=True):
                        await stream.reset()
            return answers
    except trio.TooSlowError:
        raise PeerSilent(f"{peer.peer_id} did not answer within {timeout:g} s") from None


async def _ask(stream: KadStream, questions: Sequence[KadMessage]) -> list[KadMessage]:
    answers = []
    for question in questions:
        await stream.send(question)
        if question.kind is Kind.ADD_PROVIDER:
            continue
        answer = await stream.receive()
        if answer is None:
            raise PeerClosed(f"{stream.peer_id} finished the stream unanswered")
        if answer.kind is not question.kind:
            raise BadFrame(f"{stream.peer_id} answered {question.kind.name} with {answer.kind}")
        answers.append(answer)
    return answers
