"""What a node answers to the swarm's questions: from its table and its stores, at once.

    PUT_VALUE      the record is verified, kept if it is the best of its node, and sent back
    GET_VALUE      the record while it holds, and peers nearer to the key
    ADD_PROVIDER   the sender, and nobody else, is a provider; there is no answer
    GET_PROVIDERS  who said so within ten minutes, and peers nearer to the key
    FIND_NODE      peers nearer to the key; this node itself if the key is its own
    PING           the same

A question that breaks a rule ends its stream.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import trio

from p2p.kad_store import ProviderStore, RateLimit, ValueStore
from p2p.kad_streams import KadStream
from p2p.kad_wire import MAX_QUESTION, KadMessage, Kind
from p2p.peers import Host
from p2p.streams import ByteStream
from tessella.core.addresses import PeerAddress
from tessella.core.buckets import RoutingTable
from tessella.core.errors import BadFrame, BadSignature, PeerSilent
from tessella.core.ids import PeerId
from tessella.core.kademlia import K, peer_bytes, point
from tessella.core.records import peer_of_key

# Streams of all peers and of one. go-libp2p keeps one open to each peer it talks to.
STREAMS = 256
STREAMS_PER_PEER = 8
# A stream without a question for this long is closed, so that 256 sleepers do not shut the node.
IDLE_TIMEOUT = 30.0
# Whoever does not take an answer for this long gets no other.
SEND_TIMEOUT = 10.0
# A node of the swarm stores a record a beat and a provider for each of its keys.
STORES_PER_SECOND, STORES_AT_ONCE = 2.0, 100.0
# A client that lists a mesh of a thousand asks each holder 50 times at once, then rests.
QUESTIONS_PER_SECOND, QUESTIONS_AT_ONCE = 100.0, 2000.0


class KadServer:
    """Answers streams of the kad protocol. It sends nothing of its own accord."""

    def __init__(
        self,
        host: Host,
        table: RoutingTable,
        values: ValueStore,
        providers: ProviderStore,
        *,
        clock: Callable[[], float],
        met: Callable[[PeerId], None],
    ) -> None:
        """`clock` gives seconds since 1970; `met` is told who asks."""
        self._host = host
        self._table = table
        self._values = values
        self._providers = providers
        self._clock = clock
        self._met = met
        self._stores = RateLimit(STORES_PER_SECOND, STORES_AT_ONCE)
        self._questions = RateLimit(QUESTIONS_PER_SECOND, QUESTIONS_AT_ONCE)

    async def handle(self, stream: ByteStream) -> None:
        """Answer one stream until its peer finishes. The router ends it, and its errors."""
        self._met(stream.peer_id)
        messages = KadStream(stream, MAX_QUESTION)
        while True:
            with trio.move_on_after(IDLE_TIMEOUT) as idle:
                question = await messages.receive()
            if idle.cancelled_caught or question is None:
                return
            await trio.sleep(self._questions.wait(stream.peer_id, trio.current_time()))
            answer = self.answer(question, stream.peer_id)
            if answer is None:
                continue
            with trio.move_on_after(SEND_TIMEOUT) as slow:
                await messages.send(answer)
            if slow.cancelled_caught:
                raise PeerSilent(f"{stream.peer_id} takes no answer")

    def answer(self, question: KadMessage, asker: PeerId) -> KadMessage | None:
        """The answer to one question. Raises RemoteError or Busy for what may not be asked."""
        match question.kind:
            case Kind.PUT_VALUE:
                return self._put(question, asker)
            case Kind.GET_VALUE:
                return self._get(question, asker)
            case Kind.ADD_PROVIDER:
                self._add_provider(question, asker)
                return None
            case Kind.GET_PROVIDERS:
                providers = self._providers.get(question.key, self._clock())
                closer = self._closer(question.key, asker)
                return KadMessage(question.kind, question.key, closer=closer, providers=providers)
            case Kind.FIND_NODE:
                return KadMessage(question.kind, closer=self._closer(question.key, asker))
            case Kind.PING:
                return KadMessage(question.kind)

    def _closer(self, key: bytes, asker: PeerId) -> tuple[PeerAddress, ...]:
        own = self._host.address
        if key == peer_bytes(own.peer_id):
            return (own,)
        found = self._table.nearest(point(key), K + 1)
        return tuple(peer for peer in found if peer.peer_id != asker)[:K]

    def _put(self, question: KadMessage, asker: PeerId) -> KadMessage:
        self._stores.allow(asker, trio.current_time())
        if question.value is None:
            raise BadFrame("PUT_VALUE without a record")
        self._values.put(question.key, question.value, self._clock())
        return KadMessage(question.kind, question.key, question.value)

    def _get(self, question: KadMessage, asker: PeerId) -> KadMessage:
        closer = self._closer(question.key, asker)
        try:
            found = self._values.get(peer_of_key(question.key), self._clock())
        except (BadFrame, BadSignature):
            found = None  # a key of another namespace: nothing is ever stored under it
        if found is None:
            return KadMessage(question.kind, question.key, closer=closer)
        at = datetime.fromtimestamp(found.stored_at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return KadMessage(question.kind, question.key, found.data, closer, received=at)

    def _add_provider(self, question: KadMessage, asker: PeerId) -> None:
        self._stores.allow(asker, trio.current_time())
        own_word = [peer for peer in question.providers if peer.peer_id == asker]
        if not own_word:
            raise BadFrame("ADD_PROVIDER that does not name its sender")
        self._providers.add(question.key, own_word[0], self._clock())
