"""A node comes out of the store as it went in, and a row that cannot be read says so."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musivum.clocks import Clocks
from musivum.nodes.node import Node, joined
from musivum.nodes.registration import read_registration
from musivum.nodes.saved import restored_node, saved_node
from musivum.store import SavedNode
from musivum.testing import EPOCH, HOUSE, SMALL, a_registration, clock
from tessella.core.errors import TessellaError
from tessella.core.formats import KvFormat
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Announce
from tessella.core.numeric import WEIGHT_WORDS
from tessella.core.peers import NodeStatus
from tessella.core.shape_json import encode_shape
from tessella.core.shapes import DType

WISH = replace(
    read_registration(replace(a_registration(), api_url="http://10.0.0.9:8000"), HOUSE),
    ips=(ip_address("10.0.0.9"),),
)


class Stopped(Clocks):
    """The clocks of a process whose own clock stands at 0."""

    def now(self) -> float:
        return 0.0


CLOCKS = Stopped(lambda: EPOCH)


def restored(saved: SavedNode) -> Node:
    return restored_node(saved, usable_vram_pct=90, min_vram_mb=0)


def a_node() -> Node:
    node = joined(PeerId("a"), WISH, LayerRange(0, 4), 3.0).ready(LayerRange(0, 4), 4.0)
    return node.announced(Announce("Saturated", 7, 12.5), 5.0).moved(LayerRange(4, 10))


def test_a_node_comes_back_as_it_was_but_for_its_times() -> None:
    node = a_node()
    again = restored(saved_node(node, CLOCKS))
    assert (again.row, again.wish) == (node.row, node.wish)
    assert (again.is_ready, again.target) == (True, LayerRange(4, 10))
    assert list(again.holdings()) == list(node.holdings())


def test_a_wish_for_a_range_is_not_kept_since_it_was_granted() -> None:
    wish = replace(WISH, wanted=LayerRange(0, 4))
    node = joined(PeerId("a"), wish, LayerRange(0, 4), 0.0)
    assert restored(saved_node(node, CLOCKS)).wish == replace(wish, wanted=None)


def test_a_node_that_only_its_url_leads_to_comes_back_too() -> None:
    wish = replace(WISH, addrs=(), ips=())
    node = joined(PeerId("a"), wish, LayerRange(0, 4), 0.0)
    again = restored(saved_node(node, CLOCKS))
    assert (again.row.addrs, again.row.api_url) == ((), "http://10.0.0.9:8000")
    assert again.wish == wish


async def test_the_times_of_a_node_are_kept_as_everybody_counts_them() -> None:
    now = Clocks(clock).now()
    node = replace(a_node(), joined=now - 60.0, seen=now - 5.0)
    saved = saved_node(node, Clocks(lambda: EPOCH))
    assert (EPOCH - saved.joined_at, EPOCH - saved.seen_at) == pytest.approx((60.0, 5.0), abs=0.5)


def ranges() -> st.SearchStrategy[LayerRange]:
    bounds = st.integers(0, SMALL.layers)
    pairs = st.tuples(bounds, bounds).filter(lambda pair: pair[0] < pair[1])
    return pairs.map(lambda pair: LayerRange(*pair))


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=9)
ROWS = st.builds(
    SavedNode,
    peer_id=WORDS.map(PeerId),
    model=WORDS.map(ModelId),
    contract=WORDS,
    layers=ranges(),
    status=st.sampled_from([status.value for status in NodeStatus]),
    addrs=st.lists(WORDS, max_size=3).map(tuple),
    api_url=WORDS,
    device=WORDS,
    dtype=st.sampled_from([dtype.value for dtype in DType]),
    claim_mb=st.integers(0, 2**30),
    context=st.integers(1, 2**20),
    slots=st.integers(1, 4096),
    kv=st.sampled_from([kv.value for kv in KvFormat]),
    shape=st.just(encode_shape(SMALL)),
    joined_at=st.just(EPOCH),
    seen_at=st.just(EPOCH),
    is_ready=st.booleans(),
    queue_depth=st.integers(0, 10**6),
    step_ms=st.floats(0, 1e6),
    target=st.none() | ranges(),
    weights=st.sampled_from(["", *WEIGHT_WORDS]),
    canary=st.booleans(),
)


@settings(max_examples=100)
@given(ROWS)
def test_every_row_is_written_again_as_it_was_read(row: SavedNode) -> None:
    assert saved_node(restored(row), CLOCKS) == row


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"status": "Warming"}, "Warming"),
        ({"dtype": "f8"}, "f8"),
        ({"kv": "q2"}, "q2"),
        ({"shape": b"{}"}, "shape"),
        ({"context": 0}, "cannot be sized"),
        ({"slots": 0}, "cannot be sized"),
        ({"layers": LayerRange(10, 13)}, "layers 10:13 of a model of 12"),
        ({"target": LayerRange(12, 13)}, "layers 12:13 of a model of 12"),
    ],
)
def test_a_row_that_cannot_be_read_is_refused(changes: dict[str, Any], named: str) -> None:
    saved = replace(saved_node(a_node(), CLOCKS), **changes)
    with pytest.raises((TessellaError, ValueError), match=named):
        restored(saved)
