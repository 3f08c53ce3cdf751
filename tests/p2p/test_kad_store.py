"""What is kept for strangers: the best, for as long as it holds, and so much of it."""

from __future__ import annotations

import pytest

from p2p.kad_store import (
    MAX_KEYS_PER_PEER,
    PROVIDER_LIFE,
    ProviderStore,
    RateLimit,
    ValueStore,
)
from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadFrame, BadSignature, Busy, StaleRecord
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.kademlia import peer_point
from tessella.core.layers import LayerRange
from tessella.core.records import NodeRecord, model_key, node_key, seal_record

NOW = 1000.0


def identity(number: int) -> Identity:
    return Identity(number.to_bytes(32, "big"))


NODE = identity(1)
KEY = node_key(NODE.peer_id)


def record(of: Identity = NODE, sequence: int = 1, made_at: float = NOW) -> NodeRecord:
    return NodeRecord(
        peer_id=of.peer_id,
        model=ModelId("m"),
        contract="c",
        layers=LayerRange(0, 4),
        total_layers=4,
        status="Healthy",
        addrs=(),
        device="cpu",
        dtype="f32",
        queue_depth=0,
        step_ms=0.0,
        sequence=sequence,
        made_at=made_at,
        life=60.0,
    )


def put(store: ValueStore, one: NodeRecord, by: Identity = NODE, now: float = NOW) -> NodeRecord:
    return store.put(node_key(by.peer_id), seal_record(one, by), now)


def test_a_record_is_held_while_it_lives() -> None:
    store = ValueStore(NODE.peer_id)
    put(store, record())
    held = store.get(NODE.peer_id, NOW + 59)
    assert held is not None
    assert held.record == record()
    assert store.get(NODE.peer_id, NOW + 60) is None
    assert len(store) == 0


def test_an_older_record_does_not_replace_a_newer() -> None:
    store = ValueStore(NODE.peer_id)
    put(store, record(sequence=2))
    assert put(store, record(sequence=1, made_at=NOW + 1)) == record(sequence=2)
    assert put(store, record(sequence=3)) == record(sequence=3)


def test_a_replay_after_the_end_does_not_bring_a_node_back() -> None:
    store = ValueStore(NODE.peer_id)
    data = seal_record(record(), NODE)
    store.put(KEY, data, NOW)
    store.expire(NOW + 60)
    with pytest.raises(StaleRecord):
        store.put(KEY, data, NOW + 61)
    assert store.records(NOW + 61) == []


def test_a_forgery_is_not_stored() -> None:
    store = ValueStore(NODE.peer_id)
    with pytest.raises(BadSignature):
        store.put(KEY, seal_record(record(), identity(2)), NOW)
    with pytest.raises(BadFrame):
        store.put(b"/other/x", seal_record(record(), NODE), NOW)
    assert len(store) == 0


def test_a_flood_costs_the_places_that_lie_farthest() -> None:
    store = ValueStore(NODE.peer_id, most=5)
    crowd = [identity(number) for number in range(1, 20)]
    for one in crowd:
        put(store, record(one), one)
    own = peer_point(NODE.peer_id)
    near = sorted(crowd, key=lambda one: peer_point(one.peer_id) ^ own)[:5]
    assert {r.peer_id for r in store.records(NOW)} == {one.peer_id for one in near}
    assert store.get(NODE.peer_id, NOW)


def test_the_ended_go_before_the_far() -> None:
    store = ValueStore(NODE.peer_id, most=2)
    for number in (1, 2):
        put(store, record(identity(number)), identity(number))
    later = record(identity(3), made_at=NOW + 100)
    put(store, later, identity(3), NOW + 100)
    assert store.records(NOW + 100) == [later]


def provider(number: int) -> PeerAddress:
    return PeerAddress(identity(number).peer_id, ("/ip4/127.0.0.1/tcp/1",))


def test_a_provider_is_named_until_it_stops_saying_so() -> None:
    store = ProviderStore(b"salt")
    store.add(model_key("m"), provider(1), NOW)
    store.add(model_key("m"), provider(2), NOW)
    store.add(model_key("m"), provider(2), NOW + 100)
    assert store.get(model_key("m"), NOW + 1) == (provider(1), provider(2))
    assert store.get(model_key("m"), NOW + PROVIDER_LIFE) == (provider(2),)
    assert store.get(model_key("other"), NOW) == ()
    store.expire(NOW + PROVIDER_LIFE)
    assert len(store) == 1
    store.expire(NOW + 2 * PROVIDER_LIFE)
    assert len(store) == 0


def test_a_crowded_key_keeps_the_same_share_whoever_comes_first() -> None:
    crowd = [provider(number) for number in range(1, 30)]
    kept = []
    for order in (crowd, crowd[::-1]):
        store = ProviderStore(b"salt", per_key=5)
        for one in order:
            store.add(model_key("m"), one, NOW)
        kept.append(set(store.get(model_key("m"), NOW)))
        assert len(store) == 5
    assert kept[0] == kept[1]
    other = ProviderStore(b"another", per_key=5)
    for one in crowd:
        other.add(model_key("m"), one, NOW)
    assert set(other.get(model_key("m"), NOW)) != kept[0]


def test_one_peer_is_a_provider_of_so_many_keys() -> None:
    store = ProviderStore(b"salt")
    for number in range(MAX_KEYS_PER_PEER):
        store.add(model_key(str(number)), provider(1), NOW)
    with pytest.raises(Busy):
        store.add(model_key("more"), provider(1), NOW)
    store.add(model_key("0"), provider(1), NOW)
    store.add(model_key("more"), provider(2), NOW)


def test_all_places_taken_is_busy_until_some_end() -> None:
    store = ProviderStore(b"salt", most=2)
    for number in (1, 2):
        store.add(model_key("m"), provider(number), NOW)
    with pytest.raises(Busy):
        store.add(model_key("m"), provider(3), NOW)
    store.add(model_key("m"), provider(3), NOW + PROVIDER_LIFE)
    assert len(store) == 1


@pytest.mark.parametrize("key", [b"", b"/tessella/x", bytes(34), model_key("m") + b"\0"])
def test_only_multihashes_have_providers(key: bytes) -> None:
    with pytest.raises(BadFrame):
        ProviderStore(b"").add(key, provider(1), NOW)


def test_a_rate_holds_for_each_peer_and_forgets_with_time() -> None:
    limit = RateLimit(per_second=1.0, burst=2.0)
    a, b = PeerId("a"), PeerId("b")
    for _ in range(2):
        limit.allow(a, 0.0)
    with pytest.raises(Busy, match="a stores too much"):
        limit.allow(a, 0.0)
    limit.allow(b, 0.0)
    limit.allow(a, 1.0)
    assert limit.wait(a, 1.0) == 1.0


def test_a_rate_limit_remembers_so_many_peers() -> None:
    limit = RateLimit(per_second=1.0, burst=1.0, peers=2)
    for name in "abc":
        limit.allow(PeerId(name), 0.0)
    limit.allow(PeerId("a"), 0.0)
    with pytest.raises(Busy):
        limit.allow(PeerId("c"), 0.0)
