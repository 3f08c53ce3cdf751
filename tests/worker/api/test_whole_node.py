"""A whole node behind the routes: a model that computes, a template, and the words of an answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.worker.doors import Doors

OpenMesh = Callable[..., Any]
CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/v1/generate"
PATHS = (CHAT, COMPLETIONS, GENERATE)
# A token of these models is a byte. Biased like this, an answer is of small letters.
LETTERS = {str(ord(letter)): 60.0 for letter in "abcdefghijklmnopqrstuvwxyz"}
EOS = "<|im_end|>"
EOS_ID = 258


@pytest.fixture
def doors(monkeypatch: pytest.MonkeyPatch) -> Doors:
    return Doors(monkeypatch)


def asking(path: str, **more: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": "Say something."}]
    asked: dict[str, Any] = {"messages": said} if path == CHAT else {"prompt": "Say something."}
    return {**asked, "temperature": 0.0, "max_tokens": 8, **more}


async def answered(client: httpx.AsyncClient, path: str, **more: Any) -> tuple[str, str, int]:
    """The text of an answer, why it ended, and the tokens that it took."""
    answer = await client.post(path, json=asking(path, **more))
    assert answer.status_code == 200, answer.text
    document = answer.json()
    (choice,) = document["choices"]
    assert "delta" not in choice
    text = choice["message"]["content"] if path == CHAT else choice["text"]
    return text, choice["finish_reason"], document["usage"]["completion_tokens"]


async def streamed(client: httpx.AsyncClient, path: str, **more: Any) -> tuple[str, str, int]:
    """The same, of the deltas of a stream put together."""
    options = {"stream": True, "stream_options": {"include_usage": True}}
    answer = await client.post(path, json=asking(path, **options, **more))
    assert answer.status_code == 200, answer.text
    *events, last, nothing = answer.text.split("\n\n")
    assert (last, nothing) == ("data: [DONE]", "")
    chunks = [json.loads(each[6:]) for each in events if each.startswith("data: ")]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert not any("message" in choice for choice in choices)
    parts = [each["delta"].get("content", "") if path == CHAT else each["text"] for each in choices]
    reasons = [choice["finish_reason"] for choice in choices]
    assert reasons[:-1] == [None] * (len(reasons) - 1)
    return "".join(parts), reasons[-1], chunks[-1]["usage"]["completion_tokens"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("ask", [answered, streamed])
async def test_a_stop_string_over_several_tokens_ends_the_answer_and_no_part_of_it_is_shown(
    open_mesh: OpenMesh, autojump_clock: MockClock, doors: Doors, path: str, ask: Any
) -> None:
    async with open_mesh([6], **doors.config) as mesh, doors.client(mesh.nodes[0]) as client:
        whole, reason, tokens = await ask(client, path, logit_bias=LETTERS)
        assert (whole.isalpha(), reason, tokens) == (True, "length", 8)
        stop = whole[3:6]
        before = whole[: whole.index(stop)]
        taken = len(before) + len(stop)
        found = await ask(client, path, logit_bias=LETTERS, stop=["never", stop])
        assert found == (before, "stop", taken)
        # What begins like a stop, and goes on otherwise, is shown after all.
        other = stop + ("a" if whole[6] != "a" else "b")
        assert await ask(client, path, logit_bias=LETTERS, stop=other) == (whole, "length", 8)


async def test_answers_that_are_not_streamed_leave_the_loop_to_others(
    open_mesh: OpenMesh, autojump_clock: MockClock, doors: Doors
) -> None:
    async with open_mesh([6], slots=10, **doors.config) as mesh:
        (node,) = mesh.nodes
        node.compute.pace = 0.5
        found: list[tuple[str, str, int]] = []

        async def ask(client: httpx.AsyncClient) -> None:
            found.append(await answered(client, CHAT, max_tokens=4))

        async with doors.client(node) as client, trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(ask, client)
            for _ in range(4):
                await trio.sleep(0.3)
                asked = trio.current_time()
                status = (await client.get("/status")).json()
                # Between two steps, whose half second would pass otherwise.
                assert trio.current_time() - asked < 0.1
                assert len(status["sessions"]) == 10
            assert found == []
    assert len(found) == 10
    assert {each[1:] for each in found} == {("length", 4)}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("ask", [answered, streamed])
async def test_the_token_that_ends_an_answer_is_no_text(
    open_mesh: OpenMesh, autojump_clock: MockClock, doors: Doors, path: str, ask: Any
) -> None:
    async with open_mesh([6], **doors.config) as mesh, doors.client(mesh.nodes[0]) as client:
        likely = {**LETTERS, str(EOS_ID): 64.0}
        text, reason, tokens = await ask(client, path, logit_bias=likely, max_tokens=120)
        assert (reason, tokens) == ("stop", len(text) + 1)
        assert text.isalpha(), "and not the name of that token"


@pytest.mark.parametrize("ask", [answered, streamed])
async def test_an_answer_without_a_word_says_that_the_model_stopped(
    open_mesh: OpenMesh, autojump_clock: MockClock, doors: Doors, ask: Any
) -> None:
    async with open_mesh([6], **doors.config) as mesh, doors.client(mesh.nodes[0]) as client:
        assert await ask(client, CHAT, logit_bias={str(EOS_ID): 100.0}) == ("", "stop", 1)


@pytest.mark.parametrize("ask", [answered, streamed])
async def test_characters_of_many_tokens_are_whole(
    open_mesh: OpenMesh, doors: Doors, ask: Any
) -> None:
    """In real time: a grammar is compiled in a process of its own."""
    text = "🏳️‍🌈 e\u0301 汉字 👩‍👩‍👧‍👦"
    schema = {"name": "said", "schema": {"const": text}}
    form = {"type": "json_schema", "json_schema": schema}
    async with open_mesh([6], **doors.config) as mesh, doors.client(mesh.nodes[0]) as client:
        said, reason, tokens = await ask(client, CHAT, response_format=form, max_tokens=100)
        assert (json.loads(said), reason) == (text, "stop")
        assert tokens == len(said.encode())


# As models have them that were never told of a system: Gemma's and Mistral's say this.
ALTERNATING = """
{%- for message in messages %}
  {%- if message.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
  {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
    {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
  {%- endif %}
  {{- '[' + message.role + ']' + message.content }}
{%- endfor %}"""


def turns(*roles: str) -> list[dict[str, str]]:
    return [{"role": role, "content": "Hi"} for role in roles]


@pytest.fixture
def alternating(tmp_path: Path) -> Path:
    path = tmp_path / "template.jinja"
    path.write_text(ALTERNATING)
    return path


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_that_a_template_does_not_take_is_a_bad_request_in_its_words(
    open_mesh: OpenMesh,
    autojump_clock: MockClock,
    doors: Doors,
    alternating: Path,
    stream: bool,
) -> None:
    template = {"chat_template": alternating, **doors.config}
    async with open_mesh([6], **template) as mesh, doors.client(mesh.nodes[0]) as client:

        async def ask(messages: object) -> httpx.Response:
            body = {"messages": messages, "max_tokens": 1, "stream": stream}
            return await client.post(CHAT, json=body)

        for roles in (("user", "user"), ("assistant",), ("user", "assistant", "assistant")):
            refused = (await ask(turns(*roles))).json()["error"]
            assert (refused["code"], refused["type"]) == ("bad_request", "invalid_request_error")
            assert "Conversation roles must alternate" in refused["message"]
        empty = await ask([])
        assert (empty.status_code, empty.json()["error"]["param"]) == (400, "messages")
        # The node outlives them, and says a system message where the template has no place for it.
        for roles in (("user",), ("system", "user"), ("user", "assistant", "user")):
            assert (await ask(turns(*roles))).status_code == 200


SHAPES: list[Any] = ["Hi", [{"type": "text", "text": "Hi"}], [{"type": "text", "text": "H"}] * 2]


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
async def test_a_content_of_any_shape_is_read_whoever_said_it(
    open_mesh: OpenMesh, autojump_clock: MockClock, doors: Doors, role: str
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    before: list[dict[str, Any]] = [{"role": "user", "content": "x"}]
    more: dict[str, Any] = {"role": role}
    if role == "tool":
        before.append({"role": "assistant", "content": None, "tool_calls": [call]})
        more["tool_call_id"] = "c"
    async with open_mesh([6], **doors.config) as mesh, doors.client(mesh.nodes[0]) as client:

        async def ask(content: object) -> httpx.Response:
            messages = [*before, {**more, "content": content}]
            return await client.post(CHAT, json={"messages": messages, "max_tokens": 1})

        answers = [await ask(content) for content in SHAPES]
        assert [answer.status_code for answer in answers] == [200] * len(SHAPES)
        # A token a byte: each is two characters, and none was blanked.
        text, parts, two = (answer.json()["usage"]["prompt_tokens"] for answer in answers)
        assert text == parts == two
        nothing = await ask(None)
        if role == "assistant":
            assert nothing.json()["usage"]["prompt_tokens"] == text - 2
        else:
            assert (nothing.status_code, nothing.json()["error"]["code"]) == (400, "bad_request")
            assert f"role {role} needs a content" in nothing.json()["error"]["message"]
