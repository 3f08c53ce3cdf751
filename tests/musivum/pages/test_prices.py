"""What a price is of, where whoever asks left something out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from musivum.bodies.mesh import PriceArguments
from musivum.config import MusivumConfig
from musivum.nodes.manifests import Manifests
from musivum.nodes.registration import read_registration
from musivum.nodes.roster import Roster
from musivum.pages.prices import Price, price
from musivum.testing import HOUSE, SMALL, a_registration
from tessella.core.errors import UnknownManifest
from tessella.core.formats import KvFormat, WeightFormat
from tessella.core.ids import ModelId, PeerId
from tessella.core.manifest import Manifest
from tessella.core.plan import terms_of
from tessella.core.shape_json import encode_shape

CONFIG = MusivumConfig(min_vram_mb=0, context_size=64, parallel_slots=3)
PUBLISHED = Manifest(model=ModelId("small"), shape=SMALL)
CPU = a_registration()
CUDA = replace(CPU, device="cuda", dtype="bf16", kv="q8_0", context=128, slots=2)
OTHER_SHAPE = replace(SMALL, vocab=8192)


def roster(**nodes: Any) -> Roster:
    found = Roster(CONFIG)
    for name, asked in nodes.items():
        found.join(PeerId(name), read_registration(asked, HOUSE), 0.0)
    return found


def priced(
    nodes: Roster, config: MusivumConfig = CONFIG, published: bool = True, **asked: Any
) -> Price:
    known = Manifests(nodes, [PUBLISHED] if published else [])
    return price(PriceArguments(model_id="small", **asked), known, nodes, config)


def facts(found: Price) -> tuple[str, str, str, int, int]:
    return found.device, found.weights.value, found.kv.value, found.context, found.slots


BOTH = roster(a=CPU, b=CUDA)
NOBODY = roster()


@pytest.mark.parametrize(
    ("nodes", "asked", "expected"),
    [
        pytest.param(BOTH, {}, ("cpu", "f32", "f32", 256, 1), id="as the first node"),
        pytest.param(BOTH, {"device": "cpu"}, ("cpu", "f32", "f32", 256, 1), id="as on cpu"),
        pytest.param(BOTH, {"device": "cuda"}, ("cuda", "bf16", "q8_0", 128, 2), id="as on cuda"),
        pytest.param(BOTH, {"device": "metal"}, ("metal", "f16", "f16", 64, 3), id="as configured"),
        pytest.param(NOBODY, {}, ("cpu", "f32", "f32", 64, 3), id="nobody is there"),
        pytest.param(NOBODY, {"device": "cuda"}, ("cuda", "f16", "f16", 64, 3), id="nor on cuda"),
        pytest.param(
            BOTH,
            {
                "device": "cuda",
                "dtype": "Q8_0",
                "kv_cache_type": "q4_0",
                "context_size": 32,
                "parallel_slots": 5,
            },
            ("cuda", "Q8_0", "q4_0", 32, 5),
            id="all as asked",
        ),
        pytest.param(
            NOBODY, {"dtype": "INT4"}, ("cpu", "INT4", "f16", 64, 3), id="KV beside groups"
        ),
        pytest.param(
            NOBODY, {"context_size": 100_000}, ("cpu", "f32", "f32", 256, 3), id="no more positions"
        ),
    ],
)
def test_what_is_left_out_is_as_nodes_of_that_device_serve_it_and_then_as_configured(
    nodes: Roster, asked: dict[str, Any], expected: tuple[str, str, str, int, int]
) -> None:
    found = priced(nodes, **asked)
    assert facts(found) == expected
    assert found.contract == PUBLISHED.contract
    _, weights, kv, context, slots = expected
    assert found.terms == terms_of(
        SMALL,
        WeightFormat(weights),
        context=context,
        slots=slots,
        kv=KvFormat(kv),
        usable_vram_pct=90,
        min_vram_mb=0,
    )


def test_the_configured_kv_type_holds_where_nobody_serves() -> None:
    config = replace(CONFIG, kv_cache_type="q4_0")
    assert priced(NOBODY, config).kv is KvFormat.Q4_0
    assert priced(BOTH, config).kv is KvFormat.F32
    assert priced(NOBODY, config, kv_cache_type="f16").kv is KvFormat.F16


def test_the_rules_of_this_mesh_are_in_every_price() -> None:
    config = replace(CONFIG, usable_vram_pct=50, min_vram_gb=1.0)
    terms = priced(NOBODY, config).terms
    assert (terms.usable_vram_pct, terms.min_vram_mb) == (50, 1024)


def test_nodes_that_serve_something_else_under_the_name_say_nothing_about_its_price() -> None:
    other = Manifest(model=ModelId("small"), shape=OTHER_SHAPE)
    foreign = replace(
        CUDA, contract=other.contract, shape=encode_shape(OTHER_SHAPE), device="cpu", claim_mb=99
    )
    nodes = roster(a=foreign, b=CPU, c=CPU)
    assert facts(priced(nodes)) == ("cpu", "f32", "f32", 256, 1)
    assert facts(priced(nodes, published=False)) == ("cpu", "f32", "f32", 256, 1)


def test_nodes_that_are_gone_say_nothing_about_the_price() -> None:
    nodes = roster(a=CUDA, b=CPU)
    nodes.lost(PeerId("a"), 1.0)
    assert facts(priced(nodes)) == ("cpu", "f32", "f32", 256, 1)


def test_a_model_that_nobody_knows_has_no_price() -> None:
    with pytest.raises(UnknownManifest, match="no manifest of 'small'"):
        priced(NOBODY, published=False)


def test_one_node_that_serves_otherwise_is_not_what_all_are_sized_with() -> None:
    greedy = replace(CPU, context=1 << 20, slots=4096, claim_mb=1 << 30)
    found = priced(roster(a=greedy, b=CPU, c=CPU))
    assert facts(found) == ("cpu", "f32", "f32", 256, 1)
