"""Completions of a text, whole and as events: golden bytes."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tessella.core.completions import CompletionRequest, Fill
from tessella.core.messages import Alternative
from tessella.worker.api.rooms import Say
from tests.worker.api.conftest import Node, begun, delta, done, minimal, saying

COMPLETIONS, GENERATE, FILL = PATHS = ("/v1/completions", "/v1/generate", "/v1/fim/completions")
HEAD = {
    "id": f"cmpl-{0:032x}",
    "created": 1_800_000_000,
    "model": "org/small",
    "object": "text_completion",
}
USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 3,
    "total_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 0},
}


def choice(text: str, reason: str | None, logprobs: Any = None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": reason}


@pytest.mark.parametrize("path", PATHS)
async def test_an_answer_is_this_document(node: Node, client: httpx.AsyncClient, path: str) -> None:
    node.script = saying("Hel", "lo", "汉")
    answer = await client.post(path, json=minimal(path))
    plain = {} if path == COMPLETIONS else {"text": "Hello汉"}
    assert answer.json() == {
        **HEAD,
        "choices": [choice("Hello汉", "stop")],
        "usage": USAGE,
        **plain,
    }


@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_is_these_events(node: Node, client: httpx.AsyncClient, path: str) -> None:
    node.script = saying("", "汉", "!")
    options = {"include_usage": True}
    answer = await client.post(path, json=minimal(path, stream=True, stream_options=options))
    *found, timing, last, nothing = answer.text.split("\n\n")
    assert (timing[:16], last, nothing) == (": server-timing ", "data: [DONE]", "")

    def chunk(text: str, reason: str | None) -> dict[str, Any]:
        plain = {} if path == COMPLETIONS else {"text": text}
        return {**HEAD, "choices": [choice(text, reason)], **plain, "usage": None}

    assert [json.loads(each.removeprefix("data: ")) for each in found] == [
        chunk("汉", None),
        chunk("!", None),
        chunk("", "stop"),
        {**HEAD, "choices": [], "usage": USAGE},
    ]


async def test_log_probabilities(node: Node, client: httpx.AsyncClient) -> None:
    top = [Alternative(5, -2.0)]
    node.script = saying(delta("Hel", 1, top), delta("!", 5), delta("", 0))
    body = minimal(COMPLETIONS, logprobs=1)
    assert (await client.post(COMPLETIONS, json=body)).json()["choices"] == [
        choice(
            "Hel!",
            "stop",
            {
                "tokens": ["Hel", "!", "</s>"],
                "token_logprobs": [-0.25, -0.25, -0.25],
                "top_logprobs": [{"Hel": -0.25, "!": -2.0}, {"!": -0.25}, {"</s>": -0.25}],
                "text_offset": [0, 3, 4],
            },
        )
    ]


async def test_prompts_are_answered_in_their_order(node: Node, client: httpx.AsyncClient) -> None:
    async def script(request: CompletionRequest, say: Say) -> None:
        await say(begun())
        await say(delta(request.prompt * 2))
        await say(done(1))

    node.script = script
    answer = await client.post(COMPLETIONS, json={"prompt": ["a", "b"], "n": 2})
    found = answer.json()
    assert [each["text"] for each in found["choices"]] == ["aa", "aa", "bb", "bb"]
    assert [each["index"] for each in found["choices"]] == [0, 1, 2, 3]
    # Each prompt once, whatever its answers.
    assert (found["usage"]["prompt_tokens"], found["usage"]["completion_tokens"]) == (14, 4)


async def test_a_gap_is_filled_without_naming_the_model(
    node: Node, client: httpx.AsyncClient
) -> None:
    body = {"prefix": "fn main() {", "suffix": "}", "max_tokens": 128}
    answer = await client.post(FILL, json=body)
    assert answer.status_code == 200
    (asked,) = node.asked
    assert (asked.fill, asked.sampling.max_tokens) == (Fill("fn main() {", "}"), 128)
    assert asked.sampling.temperature == 0.0
