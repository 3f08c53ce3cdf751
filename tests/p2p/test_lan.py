"""Multicast discovery: TXT records as libp2p's mDNS has them, and nodes that see each other."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from p2p.dht import open_dht
from p2p.host import open_host
from p2p.lan import open_lan, peers_in, txt_of
from p2p.testing_dht import numbered
from tessella.core.addresses import MAX_ADDRS, PeerAddress

A = PeerAddress(numbered(1).peer_id, ("/ip4/10.0.0.1/tcp/4001", "/ip6/fd00::1/tcp/4001"))
LOOPBACK = "127.0.0.1"


def test_a_txt_record_holds_one_dnsaddr_for_each_address() -> None:
    text = f"dnsaddr=/ip4/10.0.0.1/tcp/4001/p2p/{A.peer_id}".encode()
    assert txt_of(A).startswith(bytes([len(text)]) + text)
    assert peers_in(txt_of(A)) == (A,)


def test_what_is_no_address_of_ours_is_passed_over() -> None:
    strings = [b"x=1", b"dnsaddr=/ip4/1.2.3.4/udp/1/quic-v1/p2p/x", b"dnsaddr=\xff", b""]
    foreign = b"".join(bytes([len(text)]) + text for text in strings)
    assert peers_in(foreign + txt_of(A)) == (A,)
    assert len(peers_in(txt_of(A) * 100)[0].addrs) <= MAX_ADDRS
    long = PeerAddress(A.peer_id, (f"/dns4/{'a' * 240}/tcp/1", *A.addrs))
    assert peers_in(txt_of(long)) == (A,)


@given(st.binary(max_size=300))
def test_rubbish_is_nobody(data: bytes) -> None:
    assert peers_in(data) == ()


@pytest.mark.mesh
async def test_nodes_on_one_network_find_each_other_without_a_bootstrap() -> None:
    listen = [f"/ip4/{LOOPBACK}/tcp/0"]
    one, two = numbered(1), numbered(2)
    async with (
        open_host(one, listen=listen) as first,
        open_host(two, listen=listen) as second,
        open_dht(first, one),
        open_dht(second, two) as dht,
        open_lan(first.address, [LOOPBACK]),
        open_lan(second.address, [LOOPBACK]) as found,
    ):
        with trio.fail_after(10):
            peer = await found.receive()
        assert peer == first.address
        assert await dht.introduce(peer)
        assert dht.peers() == [first.address]
        assert not await dht.introduce(second.address)
