"""Over real sockets: who leaves is noticed at once, and OpenAI's own client understands it all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import openai
import pytest
import trio

from tessella.core.completions import CompletionRequest
from tessella.core.errors import ModelUnavailable, PeerSilent
from tessella.core.messages import Alternative
from tessella.web.server import ServeLimits, serve_http
from tessella.worker.api.rooms import Say
from tests.worker.api.conftest import PATHS, Node, begun, delta, done, minimal, saying

pytestmark = pytest.mark.mesh

T = TypeVar("T")
CHAT, COMPLETIONS = PATHS[:2]
MODEL = "org/small"
HELLO: Any = [{"role": "user", "content": "Hi"}]
LIMITS = ServeLimits(grace_seconds=0.2)
SOON = 1.0
"""Seconds within which a session ends with its client."""
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
TOOLS: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


@asynccontextmanager
async def served(node: Node) -> AsyncIterator[str]:
    """Where a node answers, for the block."""
    async with trio.open_nursery() as nursery:
        serve = partial(serve_http, node.app(), ["127.0.0.1:0"], limits=LIMITS)
        (url,) = await nursery.start(serve)
        yield url
        nursery.cancel_scope.cancel()


async def asked(node: Node, ask: Callable[[openai.OpenAI], T]) -> T:
    """What a client of OpenAI's finds, in a thread of its own."""

    def run(url: str) -> T:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            return ask(client)

    async with served(node) as url:
        with trio.fail_after(20):
            return await trio.to_thread.run_sync(run, url)


def request_bytes(path: str, body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(SOON):
        while not condition():  # noqa: ASYNC110 - a node has no event for it
            await trio.sleep(0.01)


async def receive_until(client: trio.SocketStream, wanted: bytes) -> bytes:
    got = b""
    with trio.fail_after(SOON):
        while wanted not in got:
            piece = await client.receive_some()
            assert piece, got
            got += piece
    return got


def stopping_at(moment: str) -> Any:
    async def script(request: CompletionRequest, say: Say) -> None:
        if moment != "queue":
            await say(begun())
        if moment == "decode":
            await say(delta("Hel"))
        await trio.sleep_forever()

    return script


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("moment", ["queue", "prefill", "decode"])
@pytest.mark.parametrize("abruptly", [False, True])
async def test_who_leaves_frees_the_session_at_once(
    node: Node, moment: str, stream: bool, abruptly: bool
) -> None:
    node.script = stopping_at(moment)
    async with served(node) as url:
        port = int(url.rpartition(":")[2])
        client = await trio.open_tcp_stream("127.0.0.1", port)
        await client.send_all(request_bytes(CHAT, minimal(CHAT, stream=stream)))
        await until(lambda: node.answering == 1)
        if stream and moment == "decode":
            assert b" 200 " in await receive_until(client, b'"Hel"')
        await trio.sleep(0.05)
        assert node.answering == 1
        if abruptly:
            await trio.aclose_forcefully(client)
        else:
            await client.aclose()
        await until(lambda: node.answering == 0)
        # And the next is answered as if nothing had been.
        node.script = saying("Hello")
        client = await trio.open_tcp_stream("127.0.0.1", port)
        await client.send_all(request_bytes(CHAT, minimal(CHAT)))
        await receive_until(client, b"Hello")
        await client.aclose()


async def test_an_error_in_a_stream_leaves_the_connection_of_use(node: Node) -> None:
    async def script(request: CompletionRequest, say: Say) -> None:
        await say(begun())
        await say(delta("Hel"))
        raise PeerSilent("gone")

    node.script = script
    async with served(node) as url:
        client = await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2]))
        for _ in range(2):
            await client.send_all(request_bytes(CHAT, minimal(CHAT, stream=True)))
            got = await receive_until(client, b"\r\n0\r\n\r\n")
            assert b"peer_silent" in got
            assert b"[DONE]" not in got
        await client.aclose()


def joined(pieces: Iterable[str | None]) -> str:
    return "".join(each or "" for each in pieces)


async def test_a_chat(node: Node) -> None:
    node.script = saying("Hel", "lo 🏳️‍🌈", " 汉字", "", cached=3)

    def ask(client: openai.OpenAI) -> None:
        (model,) = client.models.list().data
        assert client.models.retrieve(model.id) == model
        whole = client.chat.completions.create(model=model.id, messages=HELLO)
        assert whole.choices[0].message.content == "Hello 🏳️‍🌈 汉字"
        assert whole.choices[0].finish_reason == "stop"
        assert whole.usage is not None
        assert whole.usage.prompt_tokens_details is not None
        assert whole.usage.prompt_tokens_details.cached_tokens == 3
        stream = client.chat.completions.create(
            model=model.id,
            messages=HELLO,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        said = joined(each.choices[0].delta.content for each in chunks[:-1])
        assert said == whole.choices[0].message.content
        assert chunks[-1].usage == whole.usage
        raw = client.chat.completions.with_raw_response.create(model=model.id, messages=HELLO)
        assert raw.headers["x-request-id"] == f"{0:032x}"

    await asked(node, ask)


async def test_a_chat_that_calls(node: Node) -> None:
    node.script = saying("See.", *CALL, "")

    def ask(client: openai.OpenAI) -> None:
        whole = client.chat.completions.create(model=MODEL, messages=HELLO, tools=TOOLS)
        (choice,) = whole.choices
        assert choice.finish_reason == "tool_calls"
        assert choice.message.tool_calls is not None
        (call,) = choice.message.tool_calls
        assert call.type == "function"
        assert (call.function.name, call.function.arguments) == ("f", '{"a":1}')
        # What was answered can be sent back, with the result.
        answer: Any = choice.message.model_dump()
        result: Any = {"role": "tool", "tool_call_id": call.id, "content": "7"}
        client.chat.completions.create(model=MODEL, messages=[*HELLO, answer, result], tools=TOOLS)
        with client.chat.completions.stream(model=MODEL, messages=HELLO, tools=TOOLS) as stream:
            final = stream.get_final_completion()
        assert final.choices[0].message.tool_calls is not None
        assert final.choices[0].message.tool_calls[0].function.arguments == '{"a":1}'
        assert final.choices[0].message.content == "See."

    await asked(node, ask)
    last = node.asked[1].messages
    assert [each.role for each in last] == ["user", "assistant", "tool"]
    assert last[1].tool_calls[0].id == last[2].tool_call_id


async def test_log_probabilities(node: Node) -> None:
    node.script = saying(delta("Hel", 1, [Alternative(5, -2.0)]), delta("", 0))

    def ask(client: openai.OpenAI) -> None:
        chat = client.chat.completions.create(
            model=MODEL, messages=HELLO, logprobs=True, top_logprobs=1
        )
        assert chat.choices[0].logprobs is not None
        assert chat.choices[0].logprobs.content is not None
        first = chat.choices[0].logprobs.content[0]
        assert (first.token, first.bytes, first.top_logprobs[0].token) == (
            "Hel",
            [72, 101, 108],
            "!",
        )
        text = client.completions.create(model=MODEL, prompt="Hi", logprobs=1)
        assert text.choices[0].logprobs is not None
        assert text.choices[0].logprobs.tokens == ["Hel", "</s>"]
        assert text.choices[0].logprobs.top_logprobs is not None
        assert text.choices[0].logprobs.top_logprobs[0] == {"Hel": -0.25, "!": -2.0}

    await asked(node, ask)


async def test_a_completion(node: Node) -> None:
    async def script(request: CompletionRequest, say: Say) -> None:
        await say(begun())
        await say(delta(request.prompt.upper()))
        await say(done(1, "length"))

    node.script = script

    def ask(client: openai.OpenAI) -> None:
        whole = client.completions.create(model=MODEL, prompt=["a", "b"], n=2, max_tokens=1)
        assert [each.text for each in whole.choices] == ["A", "A", "B", "B"]
        assert {each.finish_reason for each in whole.choices} == {"length"}
        stream = client.completions.create(model=MODEL, prompt="a", stream=True)
        assert joined(each.choices[0].text for each in stream) == "A"

    await asked(node, ask)


async def test_errors_are_those_of_the_client(node: Node) -> None:
    async def script(request: CompletionRequest, say: Say) -> None:
        if request.sampling.seed == 1:
            raise ModelUnavailable("loading", 7.0)
        await say(begun())
        await say(delta("Hel"))
        raise PeerSilent("gone")

    node.script = script

    def ask(client: openai.OpenAI) -> None:
        create = partial(client.chat.completions.create, model=MODEL, messages=HELLO)
        with pytest.raises(openai.NotFoundError) as missing:
            client.chat.completions.create(model="other", messages=HELLO)
        assert missing.value.code == "unknown_model"
        with pytest.raises(openai.BadRequestError) as refused:
            create(reasoning_effort="low")
        assert (refused.value.code, refused.value.param) == (
            "unsupported_parameter",
            "reasoning_effort",
        )
        with pytest.raises(openai.InternalServerError) as loading:
            create(seed=1)
        assert loading.value.status_code == 503
        assert loading.value.response.headers["retry-after"] == "7"
        with pytest.raises(openai.APIError) as broken:
            list(create(seed=2, stream=True))
        assert (broken.value.code, str(broken.value)) == ("peer_silent", "gone")

    await asked(node, ask)


async def test_leaving_a_stream_of_the_client_frees_the_session(node: Node) -> None:
    node.script = stopping_at("decode")
    async with served(node) as url:

        def leave() -> None:
            with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
                stream = client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
                assert next(iter(stream)).choices[0].delta.role == "assistant"
                stream.close()

        with trio.fail_after(20):
            await trio.to_thread.run_sync(leave)
        await until(lambda: node.answering == 0)


async def test_the_client_of_asyncio(node: Node) -> None:
    node.script = saying("Hel", "lo")

    async def ask(url: str) -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:

            async def one() -> str:
                stream = await client.chat.completions.create(
                    model=MODEL, messages=HELLO, stream=True
                )
                return joined([each.choices[0].delta.content async for each in stream])

            return await asyncio.gather(*(one() for _ in range(8)))

    async with served(node) as url:
        with trio.fail_after(20):
            found = await trio.to_thread.run_sync(lambda: asyncio.run(ask(url)))
    assert found == ["Hello"] * 8
