"""A chat, whole and as events: golden bytes."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from tessella.core.completions import CompletionRequest
from tessella.core.messages import Alternative
from tessella.worker.api.rooms import Say
from tests.worker.api.conftest import Node, begun, delta, done, minimal, saying

PATH = "/v1/chat/completions"
HEAD = {
    "id": f"chatcmpl-{0:032x}",
    "created": 1_800_000_000,
    "model": "org/small",
    "object": "chat.completion.chunk",
}
TIMING = "queue;dur=100.0, prefill;dur=200.0, decode;dur=1000.0, hops;dur=50.0"
TOOLS = [{"type": "function", "function": {"name": "f"}}]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def chunk(index: int, delta: dict[str, Any], reason: str | None = None, **more: Any) -> Any:
    return {"index": index, "delta": delta, **more, "finish_reason": reason}


def events(text: str) -> list[Any]:
    """The JSON of all events but the last, which has to be what ends a stream."""
    *found, last, nothing = text.split("\n\n")
    assert (last, nothing) == ("data: [DONE]", "")
    return [json.loads(each.removeprefix("data: ")) for each in found if each.startswith("data")]


def choices(text: str) -> list[Any]:
    return [choice for each in events(text) for choice in each["choices"]]


async def streamed(client: httpx.AsyncClient, **more: Any) -> str:
    answer = await client.post(PATH, json=minimal(PATH, stream=True, **more))
    assert answer.status_code == 200, answer.text
    return answer.text


async def whole(client: httpx.AsyncClient, **more: Any) -> Any:
    answer = await client.post(PATH, json=minimal(PATH, **more))
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_stream_is_these_bytes(node: Node, client: httpx.AsyncClient) -> None:
    node.script = saying("Hel", "lo", "", "汉", "")
    answer = await client.post(PATH, json=minimal(PATH, stream=True))
    head = (
        f'data: {{"id":"chatcmpl-{0:032x}","created":1800000000,"model":"org/small",'
        '"object":"chat.completion.chunk","choices":[{"index":0,"delta":'
    )
    assert answer.content.decode("ascii") == (
        head + '{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
        + head + '{"content":"Hel"},"finish_reason":null}]}\n\n'
        + head + '{"content":"lo"},"finish_reason":null}]}\n\n'
        + head + '{"content":"\\u6c49"},"finish_reason":null}]}\n\n'
        + head + '{},"finish_reason":"stop"}]}\n\n'
        + f": server-timing {TIMING}\n\n"
        + "data: [DONE]\n\n"
    )  # fmt: skip
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["x-request-id"] == f"{0:032x}"
    assert answer.headers["tessella-chain"] == "12D3KooWA:0-10, 12D3KooWB:10-20"
    assert answer.headers["server-timing"].startswith("first;dur=")


async def test_an_answer_is_this_document(node: Node, client: httpx.AsyncClient) -> None:
    node.script = saying("Hel", "lo", "汉", "", reason="length", cached=3)
    answer = await client.post(PATH, json=minimal(PATH))
    assert answer.json() == {
        **HEAD,
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello汉", "refusal": None},
                "logprobs": None,
                "finish_reason": "length",
            }
        ],
        "usage": {
            "prompt_tokens": 7,
            "completion_tokens": 4,
            "total_tokens": 11,
            "prompt_tokens_details": {"cached_tokens": 3},
        },
    }
    assert answer.headers["server-timing"] == TIMING
    assert answer.headers["x-request-id"] == f"{0:032x}"
    assert answer.headers["tessella-chain"] == "12D3KooWA:0-10, 12D3KooWB:10-20"


async def test_the_usage_comes_where_it_is_asked_for(client: httpx.AsyncClient) -> None:
    *before, last = events(await streamed(client, stream_options={"include_usage": True}))
    assert last == {
        **HEAD,
        "choices": [],
        "usage": {
            "prompt_tokens": 7,
            "completion_tokens": 2,
            "total_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }
    assert {each["usage"] for each in before} == {None}
    for options in ({}, {"include_usage": False}):
        found = events(await streamed(client, stream_options=options))
        assert not any("usage" in each for each in found)
        assert all(each["choices"] for each in found)


async def test_no_delta_has_a_null_or_an_empty_text(node: Node, client: httpx.AsyncClient) -> None:
    node.script = saying("", "a", "", CALL, "", "b", "")
    first, *deltas = [each["delta"] for each in choices(await streamed(client, tools=TOOLS))]
    assert first == {"role": "assistant", "content": ""}
    assert all(None not in each.values() and each.get("content") != "" for each in deltas)


async def test_a_call_is_one_delta_and_the_reason(node: Node, client: httpx.AsyncClient) -> None:
    node.script = saying("See. ", *CALL, "")
    opening, text, call, last = choices(await streamed(client, tools=TOOLS))
    assert opening["delta"]["role"] == "assistant"
    assert text == chunk(0, {"content": "See."})
    (told,) = call["delta"]["tool_calls"]
    assert told == {
        "index": 0,
        "id": told["id"],
        "type": "function",
        "function": {"name": "f", "arguments": '{"a":1}'},
    }
    assert last == chunk(0, {}, "tool_calls")


async def test_a_call_in_a_whole_answer(node: Node, client: httpx.AsyncClient) -> None:
    node.script = saying(CALL, CALL)
    (choice,) = (await whole(client, tools=TOOLS))["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert [each["function"]["name"] for each in choice["message"]["tool_calls"]] == ["f", "f"]
    assert {each["type"] for each in choice["message"]["tool_calls"]} == {"function"}
    (one,) = (await whole(client, tools=TOOLS, parallel_tool_calls=False))["choices"]
    assert len(one["message"]["tool_calls"]) == 1


@pytest.mark.parametrize("more", [{}, {"tools": TOOLS, "tool_choice": "none"}])
async def test_what_looks_like_a_call_is_text_where_none_was_asked_for(
    node: Node, client: httpx.AsyncClient, more: dict[str, Any]
) -> None:
    node.script = saying(CALL)
    (choice,) = (await whole(client, **more))["choices"]
    assert choice["message"]["content"] == CALL
    assert "tool_calls" not in choice["message"]


async def test_log_probabilities_go_with_the_text_that_they_made(
    node: Node, client: httpx.AsyncClient
) -> None:
    top = [Alternative(1, -0.25)]
    node.script = saying(delta("Hel", 1, top), delta("", 3), delta("汉", 4), delta("", 0))
    found = choices(await streamed(client, logprobs=True, top_logprobs=1))
    tokens = [
        [token["token"] for token in each["logprobs"]["content"]] if "logprobs" in each else None
        for each in found
    ]
    assert tokens == [None, ["Hel"], ["\ufffd", "\ufffd"], ["</s>"]]
    (choice,) = (await whole(client, logprobs=True, top_logprobs=1))["choices"]
    assert len(choice["logprobs"]["content"]) == 4
    assert choice["logprobs"]["content"][0]["top_logprobs"][0]["token"] == "Hel"
    assert node.asked[0].sampling.logprobs == 1


async def test_answers_side_by_side_keep_to_their_index(
    node: Node, client: httpx.AsyncClient, autojump_clock: MockClock
) -> None:
    async def script(request: CompletionRequest, say: Say) -> None:
        number = request.sampling.seed - 5
        await say(begun(number, cached=3))
        for at in range(3):
            await trio.sleep(3 - number)
            await say(delta(f"{number}{at} "))
        await say(done(3 + number))

    node.script = script
    text = await streamed(client, n=3, seed=5, stream_options={"include_usage": True})
    said = dict.fromkeys(range(3), "")
    for each in choices(text):
        said[each["index"]] += each["delta"].get("content", "")
    assert said == {0: "00 01 02 ", 1: "10 11 12 ", 2: "20 21 22 "}
    # All of one id, whoever came first.
    assert {each["id"] for each in events(text)} == {f"chatcmpl-{2:032x}"}
    usage = events(text)[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (7, 12)
    found = await whole(client, n=3, seed=5)
    assert [each["message"]["content"] for each in found["choices"]] == list(said.values())
    assert [each["index"] for each in found["choices"]] == [0, 1, 2]
    assert found["usage"] == usage
