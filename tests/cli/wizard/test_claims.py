"""What is offered, and how it is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessella.cli.wizard.bodies import PreviewBody
from tessella.cli.wizard.claims import (
    DEFAULT_CLAIM_MB,
    preview_text,
    proposal_text,
    propose_claim,
    read_claim,
)
from tessella.cli.wizard.offers import Need, Offer
from tessella.core.errors import BadConfig
from tessella.core.layers import LayerRange

HOLE = LayerRange(9, 30)
NEEDY = Offer(model="m", missing=(HOLE,), need=Need(HOLE, 716), replica_mb=1291, floor_mb=256)
UNPRICED = Offer(model="m", missing=(HOLE,), need=Need(HOLE, None))
WHOLE = Offer(model="m", replica_mb=1291)
UNKNOWN = Offer(model="m")


@pytest.mark.parametrize(
    ("offer", "memory", "claim"),
    [
        (NEEDY, 4000, 716),
        (NEEDY, 716, 716),
        (NEEDY, 715, 643),
        (NEEDY, None, 716),
        (WHOLE, 4000, 1291),
        (WHOLE, 1000, 900),
        (WHOLE, None, 1291),
        (UNKNOWN, 1000, 900),
        (UNPRICED, 1000, 900),
        (UNKNOWN, None, DEFAULT_CLAIM_MB),
        (UNKNOWN, 0, 1),
    ],
)
def test_a_claim_is_what_is_needed_or_most_of_the_memory(
    offer: Offer, memory: int | None, claim: int
) -> None:
    assert propose_claim(offer, memory) == claim


@settings(max_examples=50)
@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_no_proposal_is_above_the_memory(wanted: int, memory: int) -> None:
    for offer in (Offer(model="m", need=Need(HOLE, wanted)), Offer(model="m", replica_mb=wanted)):
        assert 1 <= propose_claim(offer, memory) <= memory


@pytest.mark.parametrize(
    ("offer", "memory", "text"),
    [
        (
            NEEDY,
            4000,
            "cuda has 4000 MB free. Layers 9:30 are held by nobody: 716 MB hold them. "
            "No claim may be below 256 MB.",
        ),
        (
            WHOLE,
            1000,
            "cuda has 1000 MB free. No layer lacks a node; 1291 MB hold the whole model, as a "
            "replica. That is more than is free, so a part of it is proposed.",
        ),
        (UNPRICED, 10, "cuda has 10 MB free. Layers 9:30 are held by nobody."),
        (UNKNOWN, None, "How much memory cuda has free cannot be told here."),
    ],
)
def test_why_it_is_proposed(offer: Offer, memory: int | None, text: str) -> None:
    assert proposal_text(offer, "cuda", memory) == text


@pytest.mark.parametrize(("text", "claim"), [("716", 716), ("716 MB", 716), ("1mb", 1)])
def test_a_claim_is_read(text: str, claim: int) -> None:
    assert read_claim(text) == claim


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "2 GB", "٣", "9" * 30, "67108865"])
def test_what_is_no_claim_is_named(text: str) -> None:
    with pytest.raises(BadConfig, match="a claim is"):
        read_claim(text)


def test_what_a_claim_gets(preview: Callable[..., PreviewBody]) -> None:
    assert preview_text(716, preview(9, 30)) == "A claim of 716 MB would get layers 9:30 of 30."
    whole = preview_text(1291, preview(0, 30, replica=True))
    assert whole == "A claim of 1291 MB would get the whole model, layers 0:30, as a replica."
