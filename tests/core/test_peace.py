"""Who is at odds stands apart, as long as there are others."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tessella.core.errors import ModelUnavailable
from tessella.core.ids import PeerId
from tessella.core.peace import draw_in_peace, find_odds, may_stand_in
from tests.core.test_draw import TOTAL, row

ROWS = [row(f"{at}{name}", start, stop) for at, start, stop in ((0, 0, 4), (1, 4, 7), (2, 7, 10))
        for name in "ab"]  # fmt: skip
Pairs = set[frozenset[str]]


def drawn(odds: set[tuple[str, str]], first: str | None = None, seed: int = 0) -> list[str]:
    """The stages of a chain in which these should not be neighbours."""
    pairs = {frozenset(pair) for pair in odds}
    entry = PeerId(first) if first else None
    rng = random.Random(seed).random
    chain = draw_in_peace(ROWS, TOTAL, entry, rng, lambda *two: frozenset(two) in pairs)
    return [stage.peer_id for stage in chain]


def test_without_odds_it_is_any_chain() -> None:
    chains = {tuple(drawn(set(), seed=seed)) for seed in range(200)}
    assert len(chains) == 8


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("odds", "never"),
    [
        ({("0a", "1a")}, {("0a", "1a")}),
        ({("0a", "1a"), ("0a", "1b")}, {("0a", "1a"), ("0a", "1b")}),  # all behind it
        ({("1a", "2a"), ("1a", "2b")}, {("1a", "2a"), ("1a", "2b")}),
        ({("0a", "1a"), ("0b", "1a"), ("1a", "2a")}, {("0a", "1a"), ("0b", "1a")}),
        ({("0a", "1a"), ("1b", "2b"), ("0b", "1b")}, {("0a", "1a"), ("1b", "2b"), ("0b", "1b")}),
    ],
)
def test_no_two_at_odds_are_neighbours_where_there_is_such_a_chain(
    odds: set[tuple[str, str]], never: set[tuple[str, str]], seed: int
) -> None:
    chain = drawn(odds, seed=seed)
    assert not never & set(pairwise(chain))


def test_an_entry_that_was_asked_for_stays() -> None:
    assert drawn({("0a", "1a")}, first="0a")[:2] == ["0a", "1b"]
    assert drawn({("0a", "1a"), ("0a", "1b")}, first="0a")[0] == "0a"


def test_where_all_are_at_odds_they_serve_all_the_same() -> None:
    every = {(f"0{one}", f"1{other}") for one in "ab" for other in "ab"}
    assert len(drawn(every)) == 3


def test_what_nobody_serves_is_told_at_once() -> None:
    with pytest.raises(ModelUnavailable):
        draw_in_peace(ROWS[2:], TOTAL, None, random.Random(0).random, lambda *_: True)


def test_odds_are_of_neighbours_and_spares_have_none_in_the_chain() -> None:
    chain = draw_in_peace(ROWS, TOTAL, None, random.Random(0).random, lambda *_: False)
    one, two, three = (stage.peer_id for stage in chain)
    assert find_odds(chain, lambda *pair: pair == (one, two)) == (two, one)
    assert find_odds(chain, lambda *pair: set(pair) == {one, three}) is None
    assert may_stand_in(two, chain, lambda *_: True), "it is in it"
    assert not may_stand_in(PeerId("x"), chain, lambda *pair: pair == ("x", three))
    assert may_stand_in(PeerId("x"), chain, lambda *pair: False)
