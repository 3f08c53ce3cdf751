"""What a mesh lacks, from what it answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from tessella.cli.wizard.bodies import HealthBody, ModelBody
from tessella.cli.wizard.offers import (
    Need,
    Offer,
    offer_of,
    offers_of_rows,
    offers_table,
    ranges_text,
)
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.peers import PeerRow

Span = tuple[int, int]

LISTED = ModelBody(model_id="small", active_workers=1, workers=2, health="incomplete")
ROW = PeerRow(
    peer_id=PeerId("a"),
    model=ModelId("small"),
    contract="",
    layers=LayerRange(0, 4),
    total_layers=12,
    status="Healthy",
    addrs=(),
    device="cpu",
    dtype="f32",
    queue_depth=0,
    step_ms=0.0,
)


def health(
    holes: list[tuple[int, int, int]], loading: list[Span] | None = None, **changes: object
) -> HealthBody:
    plain: dict[str, object] = {
        "total_layers": 30,
        "holes": [{"start": a, "stop": b, "claim_mb": mb} for a, b, mb in holes],
        "loading": [{"start": a, "stop": b} for a, b in loading or []],
        "mem_per_layer_mb": 10.0,
        "global_tensor_mb": 80.0,
        "usable_vram_pct": 90,
        "min_vram_mb": 256,
        "replica_claim_mb": 1291,
    }
    return HealthBody.model_validate({**plain, **changes})


@pytest.mark.parametrize(
    ("holes", "loading", "need"),
    [
        ([], [], None),
        ([(9, 30, 716)], [], Need(LayerRange(9, 30), 716)),
        ([(3, 5, 300), (9, 30, 716)], [], Need(LayerRange(3, 5), 300)),
        ([(9, 30, 716)], [(9, 30)], None),
        # (14 layers x 10 MB + 80 MB) / 0.9, by the published formula
        ([(9, 30, 716)], [(9, 16)], Need(LayerRange(16, 30), 245 + 11)),
        ([(3, 5, 300), (9, 30, 716)], [(3, 5)], Need(LayerRange(9, 30), 716)),
    ],
)
def test_a_node_is_needed_where_nobody_serves_or_loads(
    holes: list[tuple[int, int, int]], loading: list[Span], need: Need | None
) -> None:
    assert offer_of(LISTED, health(holes, loading)).need == need


def test_where_layers_have_no_price_the_need_has_none() -> None:
    found = offer_of(LISTED, health([(0, 30, 9)], [(0, 5)], mem_per_layer_mb=None))
    assert found.need == Need(LayerRange(5, 30), None)


def test_without_its_health_a_model_is_what_the_list_says() -> None:
    expected = Offer(model="small", serving=1, nodes=2, health="incomplete")
    assert offer_of(LISTED, None) == expected


def test_rows_of_the_swarm_are_gathered_by_model() -> None:
    rows = [
        ROW,
        replace(ROW, layers=LayerRange(4, 8), status="PendingLoad"),
        replace(ROW, layers=LayerRange(8, 12), status="Offline"),
        replace(ROW, model=ModelId("another"), layers=LayerRange(0, 12)),
    ]
    another, small = offers_of_rows(rows)
    assert (another.model, another.health, another.missing) == ("another", "healthy", ())
    assert another.need is None
    assert (small.serving, small.nodes, small.missing) == (1, 2, (LayerRange(4, 12),))
    assert small.need == Need(LayerRange(8, 12), None)


@pytest.mark.parametrize(
    "row",
    [
        replace(ROW, layers=LayerRange(0, 13)),
        replace(ROW, total_layers=0),
        replace(ROW, model=ModelId("\x1b[2J")),
        replace(ROW, model=ModelId("")),
    ],
)
def test_a_row_that_contradicts_itself_is_left_out(row: PeerRow) -> None:
    assert offers_of_rows([row]) == []


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 11), st.integers(1, 12), st.sampled_from(["Healthy", "x"])))
)
def test_what_is_missing_and_what_is_served_is_the_whole_model(
    held: list[tuple[int, int, str]],
) -> None:
    rows = [
        replace(ROW, layers=LayerRange(start, stop), status=status)
        for start, stop, status in held
        if start < stop
    ]
    for offer in offers_of_rows(rows):
        missing = {layer for hole in offer.missing for layer in hole}
        served = {layer for row in rows if row.serves for layer in row.layers}
        assert missing | served == set(range(12))
        assert not missing & served


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        ([], "none"),
        ([(9, 30)], "9:30"),
        ([(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)], "0:1, 2:3, 4:5, 6:7, 2 more"),
    ],
)
def test_ranges_in_few_words(ranges: list[Span], text: str) -> None:
    assert ranges_text([LayerRange(*one) for one in ranges]) == text


def test_the_table_fits_a_terminal() -> None:
    two = LayerRange(9, 16), LayerRange(20, 24)
    offers = [
        Offer(
            model="Qwen/Qwen2.5-0.5B-Instruct",
            serving=1,
            nodes=2,
            health="incomplete",
            missing=two,
            need=Need(two[0], 716),
        ),
        Offer(model="done", serving=3, nodes=3, health="healthy"),
        Offer(model="soon", nodes=1, health="incomplete", missing=two[:1]),
        Offer(model="[bold]", missing=two[:1], need=Need(two[0], None)),
    ]
    console = Console(width=78)
    with console.capture() as shown:
        console.print(offers_table(offers))
    rows = [" ".join(line.split()) for line in shown.get().splitlines()]
    assert rows == [
        "model nodes health missing layers MB needed",
        "1 Qwen/Qwen2.5-0.5B-Instruct 1 of 2 incomplete 9:16, 20:24 716",
        "2 done 3 of 3 healthy none -",
        "3 soon 0 of 1 incomplete 9:16 loading",
        "4 [bold] 0 of 0 unknown 9:16 ?",
    ]
