"""Nothing that is asked is ignored: each field is honoured, asks for nothing, or is refused."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.worker.api.conftest import PATHS, Node, minimal

CHAT, COMPLETIONS, GENERATE, FILL = PATHS

# A value that asks for something, under names that others know.
REFUSED: dict[str, Any] = {
    "audio": {"voice": "x"},
    "best_of": 2,
    "echo": True,
    "enable_thinking": False,
    "function_call": "auto",
    "functions": [],
    "guided_json": {},
    "max_token": 1,
    "modalities": ["audio"],
    "prediction": {"type": "content", "content": "x"},
    "prompt_cache_retention": "24h",
    "reasoning_effort": "low",
    "repeat_penalty": 1.1,
    "service_tier": "priority",
    "store": True,
    "temprature": 0.5,
    "verbosity": "low",
    "web_search_options": {},
}
HARMLESS: dict[str, Any] = {
    "logit_bias": {},
    "metadata": {"a": "b"},
    "model": None,
    "n": 1,
    "prompt_cache_key": "x",
    "safety_identifier": "x",
    "service_tier": "auto",
    "session": None,
    "stop": [],
    "store": False,
    "stream": False,
    "stream_options": {"include_usage": True, "include_obfuscation": False},
    "user": "someone",
    "whatever": None,
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("field", REFUSED)
async def test_what_cannot_be_honoured_is_refused_by_its_name(
    node: Node, client: httpx.AsyncClient, path: str, field: str
) -> None:
    answer = await client.post(path, json=minimal(path, **{field: REFUSED[field]}))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == ("unsupported_parameter", "invalid_request_error")
    assert error["param"].startswith(field)
    assert error["message"].startswith(field)
    assert node.asked == []


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("field", HARMLESS)
async def test_what_asks_for_nothing_changes_nothing(
    node: Node, client: httpx.AsyncClient, path: str, field: str
) -> None:
    for more in ({}, {field: HARMLESS[field]}):
        answer = await client.post(path, json=minimal(path, seed=1, **more))
        assert answer.status_code == 200, answer.text
    assert node.asked[0] == node.asked[1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("modalities", ["text"]),
        ("parallel_tool_calls", True),
        ("parallel_tool_calls", False),
        ("logprobs", False),
        ("top_logprobs", 0),
        ("tools", []),
        ("tool_choice", "auto"),
        ("tool_choice", "none"),
        ("response_format", {"type": "text"}),
    ],
)
async def test_what_asks_a_chat_for_nothing_changes_nothing(
    node: Node, client: httpx.AsyncClient, field: str, value: Any
) -> None:
    for more in ({}, {field: value}):
        answer = await client.post(CHAT, json=minimal(CHAT, seed=1, **more))
        assert answer.status_code == 200, answer.text
    plain, other = node.asked
    assert plain.sampling == other.sampling
    assert plain.tools == other.tools


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", "64"),
        ("max_tokens", 2**31),
        ("max_tokens", 1.5),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", "0"),
        ("temperature", True),
        ("top_p", 1.1),
        ("top_k", -1),
        ("min_p", 1),
        ("presence_penalty", 3),
        ("frequency_penalty", -3),
        ("repetition_penalty", 0),
        ("seed", 2**64),
        ("seed", 0.5),
        ("stop", ""),
        ("stop", 5),
        ("stop[0]", [""]),
        ("stop[1]", ["a", "x" * 257]),
        ("stop", ["a"] * 17),
        ("logit_bias", [1]),
        ("logit_bias.a", {"a": 1}),
        ("logit_bias.1", {"1": 101}),
        ("logit_bias", {"99999999999": 1}),
        ("logit_bias", {"9999999999": 1}),
        ("logit_bias", {"1": 1, "01": 2}),
        ("logit_bias", {str(number): 1 for number in range(1025)}),
        ("n", 0),
        ("n", 5),
        ("stream", "true"),
        ("stream_options", True),
        ("session", "short"),
        ("user", 5),
        ("model", 5),
    ],
)
async def test_a_value_out_of_its_rule_is_refused_by_its_name(
    node: Node, client: httpx.AsyncClient, path: str, field: str, value: Any
) -> None:
    name = field.partition("[")[0].partition(".")[0]
    answer = await client.post(path, json=minimal(path, **{name: value}))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(field)
    assert node.asked == []


@pytest.mark.parametrize("path", PATHS)
async def test_a_number_without_a_value_is_not_json(client: httpx.AsyncClient, path: str) -> None:
    content = b'{"temperature": NaN}'
    answer = await client.post(path, content=content, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        (COMPLETIONS, "prompt", [1, 2, 3]),
        (COMPLETIONS, "prompt", [[1, 2], [3]]),
        (GENERATE, "best_of", 0),
        (GENERATE, "n", 2),
        (FILL, "n", 2),
        (GENERATE, "suffix", "x"),
        (GENERATE, "messages", []),
        (FILL, "prompt", "x"),
        (COMPLETIONS, "tools", []),
        (COMPLETIONS, "max_completion_tokens", 5),
        (COMPLETIONS, "response_format", {"type": "json_object"}),
        (CHAT, "prompt", "x"),
        (CHAT, "response_format", {"type": "grammar"}),
        (CHAT, "tools", [{"type": "custom", "custom": {"name": "x"}}]),
        (CHAT, "tool_choice", {"type": "allowed_tools"}),
    ],
)
async def test_what_a_route_does_not_have_is_unsupported(
    client: httpx.AsyncClient, path: str, field: str, value: Any
) -> None:
    error = (await client.post(path, json=minimal(path, **{field: value}))).json()["error"]
    assert error["code"] == "unsupported_parameter"
    assert error["param"].startswith(field)


@pytest.mark.parametrize(
    ("field", "value"),
    [("store", 0), ("store", "false"), ("echo", 0), ("best_of", True), ("best_of", 1.0)],
)
async def test_a_value_of_another_type_is_not_the_usual_one(
    client: httpx.AsyncClient, field: str, value: Any
) -> None:
    answer = await client.post(GENERATE, json=minimal(GENERATE, **{field: value}))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


@pytest.mark.parametrize("prompt", ["", [], [""], ["a", ""], ["a"] * 5, 5, {"a": 1}, [None]])
async def test_a_prompt_has_something_to_go_on_from(client: httpx.AsyncClient, prompt: Any) -> None:
    answer = await client.post(COMPLETIONS, json={"prompt": prompt})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("prompt")


@pytest.mark.parametrize("body", [{}, {"prefix": "", "suffix": ""}, {"prefix": ""}])
async def test_a_gap_has_an_edge(client: httpx.AsyncClient, body: dict[str, str]) -> None:
    answer = await client.post(FILL, json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prefix")
