"""A record that a database would refuse is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from musivum.store.records import SavedManifest, SavedNode, SavedReputation
from tessella.core.ids import ModelId, PeerId

BAD_NODES = [
    ("model", "toy\0", "not a text"),
    ("status", "\ud800", "not a text"),
    ("claim_mb", -1, "no count"),
    ("queue_depth", 2**63, "no count"),
    ("seen_at", math.nan, "not zero or more"),
    ("joined_at", -1.0, "not zero or more"),
    ("step_ms", math.inf, "not zero or more"),
    ("shape", b"\xff", "not UTF-8"),
]


@pytest.mark.parametrize(("field", "value", "why"), BAD_NODES)
def test_a_node_that_cannot_be_kept_names_its_field(
    a_node: Callable[..., SavedNode], field: str, value: Any, why: str
) -> None:
    with pytest.raises(ValueError, match=f"^SavedNode.{field}: {why}"):
        a_node(**{field: value})


def test_counters_never_go_below_zero() -> None:
    with pytest.raises(ValueError, match=r"^SavedReputation.accused: no count: -1"):
        SavedReputation(peer_id=PeerId("a"), accused=-1)


def test_a_manifest_is_of_some_model_and_some_time() -> None:
    with pytest.raises(ValueError, match=r"SavedManifest.model"):
        SavedManifest(model=ModelId("\0"), document=b"", published_at=0.0)
    with pytest.raises(ValueError, match=r"SavedManifest.published_at"):
        SavedManifest(model=ModelId("a"), document=b"", published_at=-0.5)
