"""The client of `tessella chat` at the API of a node: what one says the other understands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from tessella.cli.discovery import Way
from tessella.cli.doors import HttpDoor, find_doors
from tessella.core.completions import ChatMessage, CompletionRequest, Fill
from tessella.core.errors import ContextTooLong, RemoteFailure
from tessella.core.messages import Begun, Delta, Done
from tessella.core.sampling import Sampling
from tessella.web.client import open_client
from tessella.worker.api.rooms import Say
from tests.worker.api.conftest import CHAIN, MODEL, Node, Script, begun, delta, saying

SAMPLING = Sampling(max_tokens=9, temperature=0.5, min_p=0.1, seed=2**64 - 1, stop=("x",))
REQUESTS = [
    CompletionRequest(
        model=MODEL,
        messages=(ChatMessage("system", "be brief"), ChatMessage("user", "汉?")),
        session="0123456789abcdef" * 2,
        sampling=SAMPLING,
    ),
    CompletionRequest(model=MODEL, prompt="Once", sampling=SAMPLING),
    CompletionRequest(model=MODEL, fill=Fill("fn main() {", "}"), sampling=SAMPLING),
]


def too_long(*before: str) -> Script:
    async def script(_: CompletionRequest, say: Say) -> None:
        if before:
            await say(begun())
        for text in before:
            await say(delta(text))
        raise ContextTooLong("the prompt is 9 tokens")

    return script


@asynccontextmanager
async def at(node: Node) -> AsyncIterator[HttpDoor]:
    """The way in to a node."""
    async with open_client(httpx.ASGITransport(node.app())) as client:
        (door,) = await find_doors(Way(api_url="http://node.test", model=MODEL), None, client)
        assert isinstance(door, HttpDoor)
        yield door


@pytest.mark.parametrize("request_", REQUESTS, ids=["chat", "raw", "fill"])
async def test_a_request_arrives_as_it_was_and_so_does_its_answer(
    node: Node, request_: CompletionRequest
) -> None:
    node.script = saying("Hel", "lo", "", cached=4)
    async with at(node) as door:
        first, *rest = [event async for event in door.complete(request_)]
    assert node.asked == [request_]
    assert first == Begun("0" * 32, MODEL, 0, 0, CHAIN)
    assert "".join(each.text for each in rest if isinstance(each, Delta)) == "Hello"
    last, end = rest[-2:]
    assert last == Begun("0" * 32, MODEL, 7, 4, CHAIN)
    assert isinstance(end, Done)
    assert (end.reason, end.completion_tokens) == ("stop", 3)
    times = (end.queue_seconds, end.first_token_seconds, end.hops_seconds, end.total_seconds)
    assert times == pytest.approx((0.1, 0.3, 0.05, 1.3))


async def test_an_error_has_the_code_by_which_a_chat_forgets_its_oldest_turn(node: Node) -> None:
    node.script = too_long()
    async with at(node) as door:
        with pytest.raises(RemoteFailure, match="9 tokens") as caught:
            _ = [event async for event in door.complete(REQUESTS[0])]
    assert caught.value.code == ContextTooLong.code


async def test_an_error_amid_the_answer_comes_after_what_was_said(node: Node) -> None:
    node.script = too_long("Hel")
    heard = []
    async with at(node) as door:
        with pytest.raises(RemoteFailure, match="9 tokens"):
            async for event in door.complete(REQUESTS[0]):
                heard.append(event)
    assert [each.text for each in heard if isinstance(each, Delta)] == ["Hel"]


async def test_the_model_is_the_nodes_own(node: Node) -> None:
    async with open_client(httpx.ASGITransport(node.app())) as client:
        (door,) = await find_doors(Way(api_url="http://node.test"), None, client)
        assert door.model == MODEL
