"""Twenty thousand of the spoiled messages that `benchmarks/fuzz.py` makes a million of."""

from __future__ import annotations

import random

import pytest

from benchmarks.fuzz import Tally, Target, _judge, run
from tessella.core.errors import BadFrame


def test_no_spoiled_message_is_anything_but_refused_or_read() -> None:
    found = run(20_000, seed=1)
    assert found["all"].examples == []
    assert found["all"].other_exceptions == 0
    assert found["all"].rss_growth_mb < 8
    for name, tally in found.items():
        assert tally.refused, f"{name}: nothing was spoiled"
        assert tally.accepted, f"{name}: nothing reached what is behind the decoder"


def test_the_same_seed_spoils_the_same_bytes() -> None:
    one, two, other = run(500, seed=3), run(500, seed=3), run(500, seed=4)
    assert one["all"].accepted == two["all"].accepted
    assert one["all"].accepted != other["all"].accepted


@pytest.mark.parametrize(
    ("raised", "outcome"), [(BadFrame("x"), "refused"), (KeyError("x"), "other_exceptions")]
)
def test_an_exception_that_nobody_expects_is_told(raised: Exception, outcome: str) -> None:
    def decode(data: bytes) -> object:
        raise raised

    tally = Tally()
    _judge(Target("t", [b""], decode), random.Random(0).randbytes(4), tally)
    assert getattr(tally, outcome) == 1
    assert bool(tally.examples) == (outcome == "other_exceptions")
