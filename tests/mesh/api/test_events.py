"""The bytes of a stream, as whoever has no client of OpenAI's reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from tests.mesh.api.nodes import Document

pytestmark = pytest.mark.mesh

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ASK: Document = {"messages": [{"role": "user", "content": "What is the capital of France?"}]}
GREEDY: Document = {"temperature": 0, "max_tokens": 16}
# The model goes on with what it sees: Chinese, and emoji of several tokens each.
MANY_BYTES = ["🐱🐶" * 5, "你好世界，" * 3]
COUNTING = "1, 2, 3, 4,"


def events(answer: httpx.Response) -> list[str]:
    """What the events of a stream hold; comments are passed over."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *whole, rest = answer.content.decode().split("\n\n")
    assert rest == ""
    assert all(event.startswith(("data: ", ": ")) for event in whole)
    return [event.removeprefix("data: ") for event in whole if not event.startswith(":")]


def chunks(answer: httpx.Response) -> list[Document]:
    """Those before the end."""
    *found, last = events(answer)
    assert last == "[DONE]"
    return [json.loads(event) for event in found]


def text_of(told: Sequence[Document]) -> str:
    """What chunks of a text add up to."""
    return "".join(each["choices"][0]["text"] for each in told)


def test_deltas_add_up_without_a_null_among_them(http: httpx.Client) -> None:
    whole = http.post(CHAT, json=ASK | GREEDY).json()
    told = chunks(http.post(CHAT, json={**ASK, **GREEDY, "stream": True}))
    choices = [choice for chunk in told for choice in chunk["choices"]]
    deltas = [choice["delta"] for choice in choices]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert deltas[-1] == {}
    assert all(list(delta) == ["content"] and delta["content"] for delta in deltas[1:-1])
    (said,) = whole["choices"]
    assert "".join(delta.get("content", "") for delta in deltas) == said["message"]["content"]
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["stop"]
    assert all("message" not in choice for choice in choices)
    assert all("usage" not in chunk for chunk in told)
    assert len({(chunk["id"], chunk["object"], chunk["created"]) for chunk in told}) == 1


def test_the_usage_is_an_event_of_its_own_before_the_end(http: httpx.Client) -> None:
    options: Any = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 2}
    *before, last = chunks(http.post(CHAT, json={**ASK, **GREEDY, **options}))
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 2
    assert [chunk["usage"] for chunk in before] == [None] * len(before)


@pytest.mark.parametrize("prompt", MANY_BYTES)
def test_a_character_of_several_tokens_comes_whole(http: httpx.Client, prompt: str) -> None:
    # The last token allowed is inside a character.
    asked = {"prompt": prompt, **GREEDY, "max_tokens": 10}
    whole = http.post(TEXT, json=asked).json()["choices"][0]["text"]
    told = chunks(http.post(TEXT, json=asked | {"stream": True}))
    assert text_of(told) == whole
    assert len(told) > 2
    assert whole.endswith("\N{REPLACEMENT CHARACTER}")
    assert "\N{REPLACEMENT CHARACTER}" not in whole[:-1]
    assert not whole[:-1].isascii()


def test_a_stop_across_tokens_neither_leaks_nor_swallows(http: httpx.Client) -> None:
    asked = {"prompt": COUNTING, **GREEDY}
    full = http.post(TEXT, json=asked).json()["choices"][0]["text"]
    assert full.startswith(" 5, 6, 7, 8")
    stops: list[list[str]] = [["6, 7"], ["7, 9", ", 7,"], [", 8", "8, "], ["5, 6, 8"]]
    for stop in stops:
        found = [at for each in stop if (at := full.find(each)) >= 0]
        expected = (full[: min(found)], "stop") if found else (full, "length")
        told = chunks(http.post(TEXT, json={**asked, "stop": stop, "stream": True}))
        assert (text_of(told), told[-1]["choices"][0]["finish_reason"]) == expected, stop
    choice = http.post(TEXT, json={**asked, "stop": stops[1]}).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (" 5, 6", "stop")


def test_an_error_before_the_first_token_is_a_status(http: httpx.Client) -> None:
    answer = http.post(CHAT, json={**ASK, "model": "gpt-4o", "stream": True})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_model")
