from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.errors import BadFrame, BadRequest
from tessella.worker.http_hops.asks import (
    END,
    MAX_WAIT_SECONDS,
    STREAM_BYTES,
    Act,
    Ask,
    End,
    Said,
    read_ask,
    read_end,
)

NAME = bytes(range(STREAM_BYTES))
STREAM = ("stream", NAME.hex())
ASKS = st.builds(
    Ask,
    stream=st.binary(min_size=STREAM_BYTES, max_size=STREAM_BYTES),
    act=st.sampled_from(Act),
    number=st.integers(0, 2**53),
    wait=st.integers(0, 100).map(lambda tenths: tenths / 10),
)


@given(ASKS)
def test_what_is_asked_is_what_is_read(ask: Ask) -> None:
    assert read_ask(ask.query()) == ask


def test_a_query_to_the_letter() -> None:
    assert Ask(NAME, Act.READ, 7, 5.0).query() == (
        ("stream", "000102030405060708090a0b0c0d0e0f"),
        ("act", "read"),
        ("number", "7"),
        ("wait", "5"),
    )


@pytest.mark.parametrize(
    ("pairs", "named"),
    [
        ([("act", "open")], "query.stream"),
        ([("stream", "00" * 15), ("act", "open")], "query.stream"),
        ([("stream", "zz" * 16), ("act", "open")], "query.stream"),
        ([("stream", "AB" * 16), ("act", "open")], "query.stream"),
        ([STREAM], "query.act"),
        ([STREAM, ("act", "close")], "query.act: one of open, write, finish, read, reset"),
        ([STREAM, ("act", "OPEN")], "query.act"),
        ([STREAM, ("act", "write"), ("number", "-1")], "query.number"),
        ([STREAM, ("act", "write"), ("number", "1.0")], "query.number"),
        ([STREAM, ("act", "write"), ("number", "١")], "query.number"),
        ([STREAM, ("act", "write"), ("number", "9" * 16)], "query.number"),
        ([STREAM, ("act", "write"), ("number", "9" * 999)], "query.number"),
        ([STREAM, ("act", "read"), ("wait", "inf")], "query.wait"),
        ([STREAM, ("act", "read"), ("wait", "1e0")], "query.wait"),
        ([STREAM, ("act", "read"), ("wait", f"{MAX_WAIT_SECONDS + 1}")], "query.wait"),
        ([STREAM, ("act", "open"), ("more", "1")], "query: each of stream, act, number, wait once"),
        ([STREAM, STREAM, ("act", "open")], "query: each of"),
    ],
)
def test_a_query_that_is_none_is_refused_by_the_parameter(
    pairs: list[tuple[str, str]], named: str
) -> None:
    with pytest.raises(BadRequest, match=named.replace(".", r"\.")):
        read_ask(pairs)


@pytest.mark.parametrize("end", [None, *End])
def test_an_end_is_said_in_one_word(end: End | None) -> None:
    word = Said(b"", end).word
    assert read_end({END: word} if word else {}) is end


def test_another_word_is_no_end() -> None:
    with pytest.raises(BadFrame, match=END):
        read_end({END: "soon"})


def test_only_what_is_written_has_a_body() -> None:
    assert {act for act in Act if act.has_body} == {Act.WRITE, Act.FINISH}
