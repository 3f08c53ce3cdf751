"""Which weights a model is: the operator's word, and without it what most of its nodes hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from musivum.config import MusivumConfig
from musivum.nodes import manifests
from musivum.nodes.manifests import Known, Manifests
from musivum.nodes.registration import Wish, read_registration
from musivum.nodes.roster import Roster
from musivum.testing import HOUSE, SMALL, a_registration
from tessella.core import manifest as core_manifest
from tessella.core.contracts import contract_of
from tessella.core.errors import BadManifest, TooManyRequests, UnknownManifest
from tessella.core.ids import ModelId, PeerId
from tessella.core.manifest import Manifest
from tessella.core.messages import Register
from tessella.core.shape_json import encode_shape

SMALL_ID = ModelId("small")
WIDER = replace(SMALL, vocab=8192)
SMALL_CONTRACT, WIDER_CONTRACT = contract_of(SMALL), contract_of(WIDER)
OURS, THEIRS = (Manifest(model=SMALL_ID, shape=shape) for shape in (SMALL, WIDER))


def registration(manifest: Manifest) -> Register:
    shape = encode_shape(manifest.shape)
    return replace(a_registration(), contract=manifest.contract, shape=shape, claim_mb=9)


def wish(manifest: Manifest) -> Wish:
    return read_registration(registration(manifest), HOUSE)


def of_nodes(**names: Manifest) -> Roster:
    roster = Roster(MusivumConfig(min_vram_mb=0))
    for name, manifest in names.items():
        roster.join(PeerId(name), wish(manifest), 0.0)
    return roster


def test_contracts_of_two_shapes_differ() -> None:
    assert OURS.contract == contract_of(SMALL) != THEIRS.contract


def test_without_a_manifest_any_weights_are_let_in() -> None:
    known = Manifests(of_nodes())
    known.check(wish(OURS))
    known.check(wish(THEIRS))
    with pytest.raises(UnknownManifest, match="no manifest of 'small'"):
        known.of(SMALL_ID)


def test_a_published_manifest_binds_whoever_registers_under_its_name() -> None:
    known = Manifests(of_nodes(), [OURS])
    known.check(wish(OURS))
    known.check(replace(wish(THEIRS), model=ModelId("another")))
    with pytest.raises(BadManifest, match="other weights under its name") as caught:
        known.check(wish(THEIRS))
    assert OURS.contract in str(caught.value)
    assert THEIRS.contract in str(caught.value)


def test_a_published_manifest_stands_against_any_number_of_nodes() -> None:
    known = Manifests(of_nodes(a=THEIRS, b=THEIRS), [OURS])
    assert known.of(SMALL_ID) == Known(OURS, is_published=True)


def test_another_one_takes_its_place() -> None:
    known = Manifests(of_nodes(), [OURS])
    known.publish(THEIRS)
    assert known.of(SMALL_ID).manifest == THEIRS
    with pytest.raises(BadManifest):
        known.check(wish(OURS))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"a": OURS}, OURS),
        ({"a": OURS, "b": THEIRS, "c": THEIRS}, THEIRS),
        ({"a": THEIRS, "b": OURS, "c": OURS}, OURS),
        ({"a": OURS, "b": THEIRS}, min(OURS, THEIRS, key=lambda each: each.contract)),
        ({"b": OURS, "a": THEIRS}, min(OURS, THEIRS, key=lambda each: each.contract)),
    ],
)
def test_what_most_nodes_hold_is_the_model_where_nothing_is_published(
    names: dict[str, Manifest], expected: Manifest
) -> None:
    assert Manifests(of_nodes(**names)).of(SMALL_ID) == Known(expected, is_published=False)


def test_nodes_that_are_gone_have_no_vote() -> None:
    roster = of_nodes(a=THEIRS, b=THEIRS, c=OURS)
    for name in ("a", "b"):
        roster.lost(PeerId(name), 1.0)
    assert Manifests(roster).of(SMALL_ID).manifest == OURS
    roster.lost(PeerId("c"), 1.0)
    with pytest.raises(UnknownManifest):
        Manifests(roster).of(SMALL_ID)
    assert Manifests(roster).all() == []


def test_all_that_is_known_by_its_name() -> None:
    known = Manifests(of_nodes(a=OURS), [Manifest(model=ModelId("about"), shape=WIDER)])
    found = [(each.manifest.model, each.is_published) for each in known.all()]
    assert found == [("about", True), ("small", False)]


def test_so_many_models_have_a_manifest_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "MAX_PUBLISHED", 1)
    known = Manifests(of_nodes(), [OURS])
    with pytest.raises(TooManyRequests, match="1 models have a manifest already"):
        known.check_room(ModelId("another"))
    known.check_room(SMALL_ID)


def test_a_list_of_models_works_out_no_contract_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(shape: object) -> str:
        raise AssertionError(f"worked out for {shape}")

    known = Manifests(of_nodes(a=OURS), [replace(THEIRS, model=ModelId("published"))])
    monkeypatch.setattr(core_manifest, "contract_of", again)
    assert [each.manifest.contract for each in known.all()] == [WIDER_CONTRACT, SMALL_CONTRACT]


def test_of_more_models_than_are_listed_the_published_and_the_large_ones_stay() -> None:
    nodes = of_nodes(a=OURS, b=OURS, c=OURS)
    for number, model in enumerate(("!", "!!", "large", "large", "mine")):
        nodes.join(PeerId(f"of {number}"), replace(wish(OURS), model=ModelId(model)), 0.0)
    known = Manifests(nodes, [replace(OURS, model=ModelId("mine"))])
    assert known.foremost(3) == ["large", "mine", "small"]
    assert known.foremost(5) == ["!", "!!", "large", "mine", "small"]
