"""Chunks of a streamed answer as its events, and what is said of anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tessella.core.errors import BadFrame, PeerClosed, RemoteFailure
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Begun, Delta, Done, Stage
from tessella.web.event_parser import Comment, Data
from tessella.web.openai_chunks import ChunkReader, parse_chain, parse_timing

TOY = ModelId("toy")


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("a:0-10, b:10-24", (("a", 0, 10), ("b", 10, 24))),
        ("", ()),
        ("a:0-10, b", ()),
        ("a:10-0", ()),
        ("\x1b[2Ja:0-1", (("[2Ja", 0, 1),)),
    ],
)
def test_a_chain_is_read_or_not_shown(text: str, stages: tuple[tuple[str, int, int], ...]) -> None:
    assert parse_chain(text) == tuple(
        Stage(PeerId(peer), LayerRange(start, stop)) for peer, start, stop in stages
    )


def test_times_that_are_no_times_are_left_out() -> None:
    assert parse_timing("queue;dur=0.5, prefill;dur=nan, x, hops;dur=-1, decode;dur=2") == {
        "queue": 0.5,
        "decode": 2.0,
    }


def chunk(**fields: Any) -> Data:
    return Data(json.dumps({"choices": [], **fields}))


def said(text: str | None = None, reason: str | None = None) -> Data:
    delta = {} if text is None else {"content": text}
    return chunk(choices=[{"index": 0, "delta": delta, "finish_reason": reason}])


USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 2,
    "prompt_tokens_details": {"cached_tokens": 5},
}
HEADERS = {"x-request-id": "r1", "tessella-chain": "a:0-2"}
CHAIN = (Stage(PeerId("a"), LayerRange(0, 2)),)


def events_of(*stream: Data | Comment, at: float = 1.0) -> list[Any]:
    reader = ChunkReader(TOY, HEADERS, lambda: at)
    events: list[Any] = [reader.begun()]
    for one in stream:
        events += reader.take(one)
    return events if reader.done else events + reader.close()


def test_an_answer_of_a_node_becomes_its_events() -> None:
    assert events_of(
        said(""),
        said("Par"),
        said("is"),
        Comment("progress"),
        said(reason="stop"),
        chunk(usage=USAGE),
        Comment("server-timing queue;dur=100, prefill;dur=400, decode;dur=1000, hops;dur=200"),
        Data("[DONE]"),
    ) == [
        Begun("r1", TOY, 0, 0, CHAIN),
        Delta("Par", 0, 0.0, ()),
        Delta("is", 0, 0.0, ()),
        Begun("r1", TOY, 7, 5, CHAIN),
        Done("stop", 2, 0.1, 0.5, 0.2, 1.5),
    ]


def test_an_answer_of_another_server_has_the_times_that_were_seen() -> None:
    text = chunk(choices=[{"text": "x", "finish_reason": "length"}], usage=None)
    assert events_of(text, at=3.0)[1:] == [
        Delta("x", 0, 0.0, ()),
        Begun("r1", TOY, 0, 0, CHAIN),
        Done("length", 1, 0.0, 3.0, 0.0, 3.0),
    ]


def test_half_of_a_character_is_replaced_since_nothing_can_print_it() -> None:
    half = Data('{"choices": [{"text": "a\\ud83d", "finish_reason": "stop"}]}')
    assert events_of(half)[1].text == "a?"


def test_an_answer_that_breaks_off_is_an_error() -> None:
    with pytest.raises(PeerClosed, match="broke off"):
        events_of(said("Par"))


@pytest.mark.parametrize(
    ("error", "code", "retry"),
    [
        ({"code": "busy", "message": "full", "retry_after": 1}, "busy", True),
        ({"code": "bad\x1b[2J", "message": "no"}, "bad[2J", False),
    ],
)
def test_an_error_amid_the_answer_is_the_nodes(error: Any, code: str, retry: bool) -> None:
    with pytest.raises(RemoteFailure) as caught:
        events_of(said("Par"), Data(json.dumps({"error": error})))
    assert (caught.value.code, caught.value.retry) == (code, retry)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        "[" * 5000,
        "{}",
        '{"choices": {}}',
        '{"choices": [1]}',
        '{"choices": [{"text": 1}]}',
        '{"choices": [{"delta": {"content": []}}]}',
        '{"choices": [{"finish_reason": 1}]}',
        '{"error": "x"}',
    ],
)
def test_what_is_no_chunk_is_refused(text: str) -> None:
    with pytest.raises(BadFrame):
        events_of(Data(text))


def test_a_usage_of_nonsense_counts_nothing() -> None:
    usage = {"prompt_tokens": -1, "completion_tokens": "2", "prompt_tokens_details": {"x": 1}}
    begun, done = events_of(said("x", "stop"), chunk(usage=usage), Data("[DONE]"))[-2:]
    assert (begun.prompt_tokens, begun.cached_tokens, done.completion_tokens) == (0, 0, 1)
