"""Rows are records and back; a row that is not one is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musivum.store.codec import (
    manifest_row,
    node_row,
    read_manifest,
    read_node,
    read_reputation,
    reputation_row,
)
from musivum.store.records import MAX_COUNT, SavedManifest, SavedNode, SavedReputation
from tessella.core.errors import StoreLost
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
# What only stands in JSON may be any text at all, half a surrogate pair included.
words = st.text()
counts = st.integers(0, MAX_COUNT)
numbers = st.floats(0, allow_nan=False, allow_infinity=False)
ranges = st.tuples(st.integers(0, 200), st.integers(1, 200)).map(
    lambda pair: LayerRange(pair[0], pair[0] + pair[1])
)
nodes = st.builds(
    SavedNode,
    peer_id=names.map(PeerId),
    model=names.map(ModelId),
    contract=words,
    layers=ranges,
    status=names,
    addrs=st.lists(words, max_size=3).map(tuple),
    api_url=words,
    device=words,
    dtype=words,
    claim_mb=counts,
    context=counts,
    slots=counts,
    kv=words,
    shape=names.map(str.encode),
    joined_at=numbers,
    seen_at=numbers,
    is_ready=st.booleans(),
    queue_depth=counts,
    step_ms=numbers,
)
reputations = st.builds(
    SavedReputation,
    peer_id=names.map(PeerId),
    joins=counts,
    offline=counts,
    reports_made=counts,
    reports_confirmed=counts,
    accused=counts,
    accused_confirmed=counts,
)
manifests = st.builds(
    SavedManifest, model=names.map(ModelId), document=st.binary(), published_at=numbers
)

REST = (
    '{"contract":"' + "c" * 64 + '","layers":[0,4],"addrs":["/ip4/192.0.2.1/tcp/4001"],'
    '"api_url":"http://192.0.2.1:8000","device":"cpu","dtype":"f32","claim_mb":512,'
    '"context":2048,"slots":4,"kv":"f16","shape":"{\\"layers\\":8}","joined_at":1700000000.25,'
    '"is_ready":true,"queue_depth":3,"step_ms":12.5,"target":null,"weights":"q4_1","canary":false}'
)


@settings(max_examples=50)
@given(nodes)
def test_a_node_comes_back_as_it_was(node: SavedNode) -> None:
    row = node_row(node)
    assert read_node(row) == node
    assert row["rest"].isascii()
    assert "\0" not in row["rest"]


@given(reputations)
def test_reputation_comes_back_as_it_was(reputation: SavedReputation) -> None:
    assert read_reputation(reputation_row(reputation)) == reputation


@given(manifests)
def test_a_manifest_comes_back_as_it_was(manifest: SavedManifest) -> None:
    assert read_manifest(manifest_row(manifest)) == manifest


def test_the_row_of_a_node(a_node: Callable[..., SavedNode]) -> None:
    assert node_row(a_node()) == {
        "peer_id": "12D3KooWA",
        "model": "toy",
        "status": "Healthy",
        "seen_at": 1_700_000_001.5,
        "rest": REST,
    }


def changed(**changes: Any) -> str:
    return json.dumps({**json.loads(REST), **changes})


def without(name: str) -> str:
    return json.dumps({key: value for key, value in json.loads(REST).items() if key != name})


BAD_RESTS = [
    ("not json", "Expecting value"),
    ("[]", "list instead of an object"),
    ("[" * 100_000, "recursion"),
    (changed(colour="red"), "not the fields of a node: colour"),
    (without("kv"), "not the fields of a node: kv"),
    (changed(slots="4"), r"_Rest\.slots: wanted an integer"),
    (changed(slots=True), r"_Rest\.slots: wanted an integer"),
    (changed(slots=-4), r"SavedNode\.slots: no count"),
    (changed(layers=[4, 4]), "no layer range"),
    (changed(addrs=[1]), r"_Rest\.addrs: wanted str"),
    (changed(step_ms=float("nan")), r"_Rest\.step_ms: wanted a finite number"),
    (changed(shape="\ud800"), "surrogates not allowed"),
]


@pytest.mark.parametrize(("rest", "why"), BAD_RESTS)
def test_what_is_no_node_is_refused_by_the_name_of_its_row(
    a_node: Callable[..., SavedNode], rest: str, why: str
) -> None:
    with pytest.raises(StoreLost, match=f"^cannot read row '12D3KooWA' of nodes: .*{why}"):
        read_node({**node_row(a_node()), "rest": rest})


def test_counters_and_times_that_cannot_be_are_refused_by_the_name_of_their_row() -> None:
    with pytest.raises(StoreLost, match=r"row 'a' of reputation: SavedReputation.joins"):
        read_reputation({"peer_id": "a", "joins": -1})
    with pytest.raises(StoreLost, match=r"row 'toy' of manifests: SavedManifest.published_at"):
        read_manifest({"model": "toy", "document": b"", "published_at": -1.0})
