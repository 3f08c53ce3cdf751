"""What is kept as nodes come and go is what placement would find in the whole list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from musivum.nodes.cover import Cover
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.peers import NodeStatus
from tessella.core.plan import Holding, MemoryTerms, reservations

LAYERS = 6
TERMS = MemoryTerms(
    layers=LAYERS,
    tied=False,
    weights_per_layer_mb=1.0,
    kv_per_layer_mb=1.0,
    embedding_mb=1.0,
    head_mb=1.0,
)
PEERS = [PeerId(name) for name in "abcd"]

ranges = st.tuples(st.integers(0, LAYERS - 1), st.integers(1, LAYERS)).map(
    lambda pair: LayerRange(pair[0], min(LAYERS, pair[0] + pair[1]))
)
held = st.builds(
    Holding,
    peer_id=st.sampled_from(PEERS),
    layers=ranges,
    status=st.sampled_from(NodeStatus),
    steps_per_second=st.sampled_from([0.0, 0.1, 3.7, 1e5]),
    claim_mb=st.just(8),
)
changes = st.lists(
    st.tuples(st.sampled_from(PEERS), st.lists(held, max_size=2).map(tuple)), max_size=20
)


@given(changes)
def test_it_is_always_what_the_list_of_all_holdings_says(
    steps: list[tuple[PeerId, tuple[Holding, ...]]],
) -> None:
    cover = Cover(LAYERS)
    known: dict[PeerId, tuple[Holding, ...]] = {}
    for peer_id, holdings in steps:
        cover.put(peer_id, holdings)
        known[peer_id] = holdings
        every = [one for each in known.values() for one in each]
        assert cover.reservations() == reservations(TERMS, every)
        assert sorted(map(repr, cover.holdings())) == sorted(map(repr, every))
        assert set(cover.peers()) == {peer for peer, each in known.items() if each}
        assert len(cover) == len(cover.peers())


def test_an_empty_one_is_one_gap() -> None:
    assert Cover(3).reservations() == reservations(
        MemoryTerms(
            layers=3,
            tied=False,
            weights_per_layer_mb=1.0,
            kv_per_layer_mb=1.0,
            embedding_mb=1.0,
            head_mb=1.0,
        ),
        [],
    )
