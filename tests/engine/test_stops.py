from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessella.engine.stops import StopStrings


def shown(stops: list[str], deltas: list[str]) -> tuple[str, str | None]:
    watch = StopStrings(stops)
    text = "".join(watch.feed(delta) for delta in deltas) + watch.flush()
    return text, watch.found


@pytest.mark.parametrize(
    ("stops", "deltas", "text", "found"),
    [
        ([], ["any", "thing"], "anything", None),
        (["END"], ["text E", "ND more"], "text ", "END"),
        (["END"], ["text EN", "Tire"], "text ENTire", None),
        (["END"], ["text EN"], "text EN", None),
        (["aab"], ["aaaa", "b!"], "aa", "aab"),
        (["\n\n"], ["a\n", "b\n", "\nc"], "a\nb", "\n\n"),
        (["abc", "b"], ["a", "b", "c"], "a", "b"),
        (["abc", "b"], ["abc"], "a", "b"),
        (["bc", "abc"], ["zabc"], "z", "abc"),
        (["x"], ["x"], "", "x"),
        (["é"], ["caf", "é", "!"], "caf", "é"),
    ],
)
def test_cases(stops: list[str], deltas: list[str], text: str, found: str | None) -> None:
    assert shown(stops, deltas) == (text, found)


def test_only_what_might_begin_a_stop_is_held() -> None:
    watch = StopStrings(["END"])
    assert [watch.feed(delta) for delta in ("one", " E", "x", "EN", "E")] == [
        "one",
        " ",
        "Ex",
        "",
        "EN",
    ]


def test_after_a_stop_nothing_is_shown() -> None:
    watch = StopStrings(["."])
    assert watch.feed("a.b") == "a"
    assert (watch.feed("c"), watch.flush()) == ("", "")


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError, match="an empty stop string"):
        StopStrings(["a", ""])


WORDS = st.text("ab", max_size=30)
STOP = st.text("ab", min_size=1, max_size=4)


@settings(deadline=None)
@given(text=WORDS, stop=STOP)
def test_one_character_at_a_time_shows_what_comes_before_the_stop(text: str, stop: str) -> None:
    assert shown([stop], list(text))[0] == text.split(stop)[0]


@settings(deadline=None)
@given(text=WORDS, stops=st.lists(STOP, max_size=4), cuts=st.lists(st.integers(0, 30), max_size=6))
def test_how_the_text_was_cut_changes_nothing(text: str, stops: list[str], cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut <= len(text))})
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    assert shown(stops, pieces) == shown(stops, list(text))


@settings(deadline=None)
@given(text=WORDS, stops=st.lists(STOP, min_size=1, max_size=4))
def test_what_was_shown_is_never_part_of_a_stop(text: str, stops: list[str]) -> None:
    answer, _ = shown(stops, list(text))
    assert text.startswith(answer)
    assert not any(stop in answer for stop in stops)
