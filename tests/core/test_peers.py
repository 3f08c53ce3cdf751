"""Peer rows on their way through a tracker: what was listed arrives, and nothing else passes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessella.core.errors import BadFrame, ModelUnavailable
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.peers import (
    MAX_ROWS,
    QUEUED_SECONDS,
    NodeStatus,
    PeerRow,
    choose_entry,
    decode_rows,
    encode_rows,
    rank_entries,
)

ROW = PeerRow(
    peer_id=PeerId("12D3KooWx"),
    model=ModelId("org/model"),
    contract="b2:00",
    layers=LayerRange(10, 20),
    total_layers=30,
    status="Healthy",
    addrs=("/ip4/10.0.0.1/tcp/4001",),
    device="cpu",
    dtype="f32",
    queue_depth=2,
    step_ms=12.5,
)
GOLDEN = (
    b'[["12D3KooWx","org/model","b2:00",[10,20],30,"Healthy",'
    b'["/ip4/10.0.0.1/tcp/4001"],"cpu","f32",2,12.5,"",false]]'
)


def test_rows_have_golden_bytes() -> None:
    assert encode_rows([ROW]) == GOLDEN
    assert decode_rows(GOLDEN) == [ROW]


@settings(max_examples=30)
@given(
    st.lists(
        st.builds(
            PeerRow,
            peer_id=st.text().map(PeerId),
            model=st.text().map(ModelId),
            contract=st.text(),
            layers=st.integers(0, 99).map(lambda start: LayerRange(start, start + 1)),
            total_layers=st.integers(0, 2**40),
            status=st.sampled_from([status.value for status in NodeStatus]),
            addrs=st.lists(st.text(), max_size=3).map(tuple),
            device=st.text(),
            dtype=st.text(),
            queue_depth=st.integers(0, 99),
            step_ms=st.floats(allow_nan=False, allow_infinity=False),
        ),
        max_size=3,
    )
)
def test_any_rows_arrive_as_they_were(rows: list[PeerRow]) -> None:
    assert decode_rows(encode_rows(rows)) == rows


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"{}", "not an array"),
        (b"[1]", "row that is not an array"),
        (b"[[]]", "13 fields, not 0"),
        (GOLDEN.replace(b"[10,20]", b"[20,10]"), "no layer range"),
        (GOLDEN.replace(b"[10,20]", b"10"), "PeerRow.layers"),
        (GOLDEN.replace(b",2,", b",true,"), "PeerRow.queue_depth"),
        (GOLDEN.replace(b"12.5", b"NaN"), "PeerRow.step_ms"),
        (GOLDEN.replace(b"12.5", b"1e999"), "PeerRow.step_ms"),
        (json.dumps([[]] * (MAX_ROWS + 1)).encode(), f"at most {MAX_ROWS} rows"),
    ],
)
def test_what_is_no_peer_list_is_refused_by_name(data: bytes, named: str) -> None:
    with pytest.raises(BadFrame, match=named):
        decode_rows(data)


@pytest.mark.parametrize("status", list(NodeStatus))
def test_only_a_healthy_node_serves(status: NodeStatus) -> None:
    assert replace(ROW, status=status.value).serves is (status is NodeStatus.HEALTHY)


def test_a_canary_never_serves() -> None:
    assert not replace(ROW, canary=True).serves


def entry(name: str, queue_depth: int = 0, **fields: object) -> PeerRow:
    values = {"peer_id": PeerId(name), "layers": LayerRange(0, 10), "queue_depth": queue_depth}
    return replace(ROW, **(values | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "away", "order"),
    [
        ([entry("b"), entry("a")], {}, "ab"),
        ([entry("a", 2), entry("b", 1)], {}, "ba"),
        ([entry("a"), entry("b")], {"a": 0.3, "b": 0.1}, "ba"),
        ([entry("a", 1), entry("b")], {"a": 0.1, "b": 0.09 + QUEUED_SECONDS}, "ba"),
        ([entry("a", 1), entry("b")], {"a": 0.1, "b": 0.11 + QUEUED_SECONDS}, "ab"),
        ([entry("a"), entry("b", 9)], {"b": 0.1}, "ba"),
        ([entry("a"), entry("b", 9)], {"a": float("inf")}, "ba"),
        ([entry("a", addrs=()), entry("b", 9)], {}, "ba"),
        ([entry("a", addrs=()), entry("b")], {"a": 0.1}, "ab"),
        ([entry("a", canary=True), entry("b", status="Draining"), entry("c", 5)], {}, "c"),
        ([entry("a", layers=LayerRange(1, 10)), entry("b")], {}, "b"),
    ],
)
def test_the_near_and_idle_are_asked_first_and_those_that_cannot_be_an_entry_never(
    rows: list[PeerRow], away: dict[PeerId, float], order: str
) -> None:
    assert "".join(one.peer_id for one in rank_entries(rows, away)) == order


def test_without_an_entry_there_is_none_to_rank() -> None:
    with pytest.raises(ModelUnavailable, match="layer 0"):
        rank_entries([entry("a", canary=True)], {})
    assert choose_entry([entry("a", 1), entry("b")]).peer_id == "b"
