"""Markdown cut into blocks: the same blocks however the text came."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessella.cli.markdown_blocks import MAX_LINE, MAX_OPEN, Blocks

CASES = [
    ("one\ntwo\n\nthree", ["one\ntwo\n\n", "three"]),
    ("\n\none\n\n\n", ["\n\none\n\n"]),
    ("# t\n\n- a\n- b\n\nend\n", ["# t\n\n", "- a\n- b\n\n", "end\n"]),
    ("see:\n```py\na\n\nb\n```\nend", ["see:\n", "```py\na\n\nb\n```\n", "end"]),
    ("~~~\n```\n\n~~~~\nx", ["~~~\n```\n\n~~~~\n", "x"]),
    ("- a\n    ```\n    x\n\n    ```\nb", ["- a\n    ```\n    x\n\n    ```\n", "b"]),
    ("```not a fence``` x\n\ny", ["```not a fence``` x\n\n", "y"]),
    ("```\nnever closed\n\n", ["```\nnever closed\n\n"]),
    ("", []),
    (" \n", []),
]


def cut(pieces: list[str]) -> list[str]:
    blocks = Blocks()
    found = [block for piece in pieces for block in blocks.feed(piece)]
    return found + blocks.close()


@pytest.mark.parametrize(("text", "found"), CASES)
def test_blocks_end_at_blank_lines_and_with_their_fence(text: str, found: list[str]) -> None:
    assert cut([text]) == found
    assert cut(list(text)) == found


PARTS = st.sampled_from(
    ["a", "b c", " ", "\n", "\n\n", "```\n", "\n~~~\n", "x" * 700, "    ```\n", "y\n" * 900]
)


@settings(max_examples=40)
@given(st.lists(PARTS, max_size=20), st.lists(st.integers(0, 20_000), max_size=8))
def test_no_cut_changes_the_blocks_and_each_stays_small(parts: list[str], cuts: list[int]) -> None:
    text = "".join(parts)
    places = [0, *sorted(min(one, len(text)) for one in cuts), len(text)]
    whole = cut([text])
    assert cut([text[a:b] for a, b in itertools.pairwise(places)]) == whole
    assert all(len(block) <= MAX_OPEN + 2 * MAX_LINE for block in whole)


@settings(max_examples=40)
@given(st.text(st.sampled_from("ab \n`#-"), max_size=200))
def test_nothing_is_lost(text: str) -> None:
    assert "".join(cut([text])) == (text if text.strip() else "").rstrip(" \n") + trailing(text)


def trailing(text: str) -> str:
    """Blank lines at the end that no block needed."""
    kept = "".join(cut([text]))
    return kept[len(kept.rstrip(" \n")) :]


def test_a_fence_that_is_long_goes_on_in_another() -> None:
    lines = [f"line {number}\n" for number in range(1200)]
    found = cut(["```py\n", *lines, "```\n"])
    assert len(found) > 2
    assert all(block.startswith("```py\n") for block in found)
    assert all(block.endswith("```\n") for block in found)
    inside = "".join(block.removeprefix("```py\n").removesuffix("```\n") for block in found)
    assert inside.replace("\n\n", "\n") == "".join(lines)


def test_the_end_of_a_fence_is_enough_to_look_at() -> None:
    blocks = Blocks()
    blocks.feed("```py\n" + "".join(f"{number}\n" for number in range(100)) + "last")
    assert blocks.ending(3) == "```py\n97\n98\n99\nlast"
    assert len(blocks.open.splitlines()) == 102
