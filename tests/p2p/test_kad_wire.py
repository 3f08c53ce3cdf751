"""kad-dht's bytes: what libp2p's own protobuf writes is read, and the other way round."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libp2p.kad_dht.pb import kademlia_pb2
from multiaddr import Multiaddr

from p2p.kad_addresses import decode_addr, encode_addr
from p2p.kad_wire import (
    MAX_KEY,
    MAX_LISTED,
    MAX_QUESTION,
    KadMessage,
    Kind,
    MessageReader,
    decode,
    encode,
)
from p2p.protobuf import bytes_field, number_field, read_fields, varint
from tessella.core.addresses import MAX_ADDRS, PeerAddress
from tessella.core.errors import BadAddress, BadFrame, FrameTooLarge
from tessella.core.frames import NEED
from tessella.core.identity import peer_id_of
from tessella.core.kademlia import peer_bytes

A = PeerAddress(peer_id_of(bytes(32)), ("/ip4/10.0.0.1/tcp/4001", "/dns4/example.org/tcp/80"))
B = PeerAddress(peer_id_of(b"\1" * 32), ())
A_BYTES = (
    "0a26" + "002408011220" + "00" * 32 + "1208" + "040a000001060fa1"
    "1210" + "360b" + b"example.org".hex() + "060050"
)

GOLDEN = [
    (KadMessage(Kind.PING), "020805"),
    (KadMessage(Kind.FIND_NODE, b"key"), "07080412036b6579"),
    (
        KadMessage(Kind.PUT_VALUE, b"k", b"value"),
        "11080012016b1a0a0a016b120576616c7565",
    ),
    (KadMessage(Kind.GET_VALUE, b"k", closer=(A,)), "4b080112016b4244" + A_BYTES),
    (KadMessage(Kind.ADD_PROVIDER, b"k", providers=(A,)), "4b080212016b4a44" + A_BYTES),
]


@pytest.mark.parametrize(("message", "golden"), GOLDEN)
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_the_bytes_of_a_message_are_these(message: KadMessage, golden: str, step: int) -> None:
    data = bytes.fromhex(golden)
    assert encode(message) == data
    reader = MessageReader(MAX_QUESTION)
    found = []
    for at in range(0, len(data), step):
        reader.feed(data[at : at + step])
        found.append(reader.next())
    assert found[-1] == message
    assert found[:-1] == [NEED] * (len(found) - 1)
    reader.close()


def libp2ps(message: KadMessage) -> bytes:
    """The same message, as libp2p's generated code writes it."""
    theirs = kademlia_pb2.Message(type=message.kind.name, key=message.key)
    if message.value is not None:
        theirs.record.key = message.key
        theirs.record.value = message.value
        theirs.record.timeReceived = message.received
    for peers, field in ((message.closer, "closerPeers"), (message.providers, "providerPeers")):
        for peer in peers:
            one = getattr(theirs, field).add()
            one.id = peer_bytes(peer.peer_id)
            one.addrs.extend(Multiaddr(addr).to_bytes() for addr in peer.addrs)
            one.connection = 1
    data: bytes = theirs.SerializeToString()
    return data


ADDRS = [
    "/ip4/203.0.113.7/tcp/4001",
    "/ip6/2001:db8::1/tcp/65535",
    "/dns/a/tcp/1",
    "/dns4/example.org/tcp/443",
    "/dns6/example.org/tcp/443",
]
peers = st.builds(
    lambda key, addrs: PeerAddress(peer_id_of(key), tuple(addrs)),
    st.binary(min_size=32, max_size=32),
    st.lists(st.sampled_from(ADDRS), unique=True),
)
messages = st.builds(
    KadMessage,
    st.sampled_from(Kind),
    st.binary(max_size=MAX_KEY),
    st.none() | st.binary(min_size=1, max_size=50),
    st.lists(peers, max_size=3).map(tuple),
    st.lists(peers, max_size=3).map(tuple),
)


@settings(max_examples=50, deadline=None)
@given(messages)
def test_libp2ps_own_bytes_mean_the_same(message: KadMessage) -> None:
    assert decode(libp2ps(message)) == message
    reader = MessageReader(MAX_QUESTION)
    reader.feed(encode(message))
    assert reader.next() == message
    framed = encode(message)
    # The length ends with the first byte that has no continuation bit.
    start = 1 + next(at for at, byte in enumerate(framed) if byte < 0x80)
    theirs = kademlia_pb2.Message.FromString(framed[start:])
    assert int(theirs.type) == message.kind
    assert theirs.key == message.key
    assert [peer.id for peer in theirs.closerPeers] == [
        peer_bytes(peer.peer_id) for peer in message.closer
    ]


@settings(max_examples=100, deadline=None)
@given(messages, st.data())
def test_no_mutation_raises_anything_but_bad_frame(
    message: KadMessage, data: st.DataObject
) -> None:
    body = bytearray(libp2ps(message))
    for _ in range(data.draw(st.integers(0, 4))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    try:
        found = decode(bytes(body[:cut]))
    except BadFrame:
        return
    encode(found)


@given(st.binary(max_size=200))
def test_rubbish_on_a_stream_is_a_bad_frame_or_not_yet_a_message(data: bytes) -> None:
    reader = MessageReader(100)
    reader.feed(data)
    try:
        while reader.next() is not NEED:
            pass
    except BadFrame:
        pass


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (number_field(1, 6), "unknown kind"),
        (bytes_field(1, b"x"), "number belongs"),
        (number_field(2, 1), "bytes belong"),
        (bytes_field(2, bytes(MAX_KEY + 1)), "a key of 81"),
        (b"\x12\x7fabc", "ends in a field"),
        (b"\x0b", "wire type 3"),
        (b"\xff" * 12, "does not end"),
        (number_field(7, 1) * 5000, "fields"),
    ],
)
def test_what_breaks_the_format_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(BadFrame, match=why):
        decode(body)


def test_a_length_over_the_cap_is_refused_before_the_body_comes() -> None:
    reader = MessageReader(100)
    reader.feed(varint(101))
    with pytest.raises(FrameTooLarge):
        reader.next()


def test_a_length_that_never_ends_is_refused() -> None:
    reader = MessageReader(100)
    reader.feed(b"\xff" * 5)
    with pytest.raises(BadFrame, match="length"):
        reader.next()


def test_a_stream_that_ends_within_a_message_is_told() -> None:
    reader = MessageReader(100)
    reader.feed(encode(KadMessage(Kind.PING))[:2])
    assert reader.next() is NEED
    with pytest.raises(BadFrame, match="ended"):
        reader.close()


def test_foreign_peers_fields_and_addresses_are_passed_over() -> None:
    foreign = bytes_field(1, bytes.fromhex("1220") + bytes(32))
    quic = Multiaddr("/ip4/1.2.3.4/udp/4001/quic-v1").to_bytes()
    relay = Multiaddr(f"/ip4/1.2.3.4/tcp/1/p2p/{B.peer_id}/p2p-circuit").to_bytes()
    named = Multiaddr(f"/ip4/1.2.3.4/tcp/1/p2p/{A.peer_id}").to_bytes()
    known = bytes_field(1, peer_bytes(A.peer_id)) + b"".join(
        bytes_field(2, addr) for addr in (quic, relay, b"", b"\xff", named, named)
    )
    body = number_field(1, 4) + number_field(99, 1) + b"\x7d1234" + b"\x791234567\x00"
    found = decode(body + bytes_field(8, foreign) + bytes_field(8, known))
    assert found.closer == (PeerAddress(A.peer_id, ("/ip4/1.2.3.4/tcp/1",)),)


def test_lists_are_kept_up_to_their_limits() -> None:
    body = number_field(1, 3) + bytes_field(9, bytes_field(1, peer_bytes(B.peer_id))) * 2000
    assert len(decode(body).providers) == MAX_LISTED
    many = b"".join(
        bytes_field(2, encode_addr(f"/ip4/1.2.3.4/tcp/{port}")) for port in range(1, 40)
    )
    (one,) = decode(bytes_field(8, bytes_field(1, peer_bytes(B.peer_id)) + many)).closer
    assert len(one.addrs) == MAX_ADDRS


@pytest.mark.parametrize("addr", ADDRS)
def test_addresses_are_multiaddrs(addr: str) -> None:
    assert encode_addr(addr) == Multiaddr(addr).to_bytes()
    assert decode_addr(encode_addr(addr), A.peer_id) == addr


def test_an_address_of_another_shape_is_not_written() -> None:
    with pytest.raises(BadAddress):
        encode_addr("/ip4/1.2.3.4/udp/1")


def test_fields_come_in_their_order() -> None:
    assert list(read_fields(number_field(1, 300) + bytes_field(2, b"x"))) == [(1, 300), (2, b"x")]
