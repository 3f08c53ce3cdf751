"""Server-sent events, however the bytes were cut on their way."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.errors import BadFrame, FrameTooLarge
from tessella.web.event_parser import MAX_EVENT, Comment, Data, EventParser

CASES: list[tuple[bytes, list[Data | Comment]]] = [
    (b"data: a\n\n", [Data("a")]),
    (b"data:a\r\n\r\n", [Data("a")]),
    (b"data: a\r\rdata: b\r\r", [Data("a"), Data("b")]),
    (b"data: a\ndata:  b\ndata\n\n", [Data("a\n b\n")]),
    (b": alive\n\n:alive\n", [Comment("alive"), Comment("alive")]),
    (b"event: x\nid: 1\nretry: 5\ndata: a\n\n", [Data("a")]),
    (b"event: x\n\n\n\n", []),
    (b"data: never ended\n", []),
    ("data: 汉字 é\n\n".encode(), [Data("汉字 é")]),
    (b'data: {"a": "b: c"}\n: x\n\n', [Comment("x"), Data('{"a": "b: c"}')]),
]


def parsed(pieces: list[bytes]) -> list[Data | Comment]:
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)]


@pytest.mark.parametrize(("stream", "events"), CASES)
def test_events_are_the_same_whole_and_a_byte_at_a_time(
    stream: bytes, events: list[Data | Comment]
) -> None:
    assert parsed([stream]) == events
    assert parsed([stream[place : place + 1] for place in range(len(stream))]) == events


@given(
    texts=st.lists(st.text(st.sampled_from("aé汉 :\u2028"), max_size=8), max_size=6),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    cuts=st.lists(st.integers(0, 200), max_size=12),
)
def test_no_cut_changes_what_was_said(texts: list[str], end: str, cuts: list[int]) -> None:
    stream = "".join(f"data: {text}{end}{end}" for text in texts).encode()
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(places)]
    assert parsed(pieces) == [Data(text) for text in texts]


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(BadFrame, match="UTF-8"):
        parsed([b"data: \xff\n"])


@pytest.mark.parametrize(
    "pieces",
    [
        [b"data: " + b"x" * MAX_EVENT],
        [b"x" * 60_000] * 5,
        [b"data: " + b"x" * 60_000 + b"\n"] * 5,
    ],
)
def test_a_line_or_an_event_that_never_ends_is_refused(pieces: list[bytes]) -> None:
    with pytest.raises(FrameTooLarge):
        parsed(pieces)


def test_a_stream_is_read_to_its_limit_and_no_further() -> None:
    parser = EventParser(most=20)
    assert parser.feed(b"data: a\n\n") == [Data("a")]
    with pytest.raises(FrameTooLarge, match="limit of 20"):
        parser.feed(b": 3456789012\n")
