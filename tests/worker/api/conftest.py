"""A node's HTTP API over rooms whose answers are written by the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import trio
from fastapi import FastAPI

from tessella.core.completions import CompletionRequest
from tessella.core.errors import ModelUnavailable
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Alternative, Begun, Delta, Done, Stage
from tessella.core.peers import NodeStatus
from tessella.core.tool_calls import ToolFormat
from tessella.worker.api.app import node_app
from tessella.worker.api.rooms import Rooms, Say
from tessella.worker.counters import Counters
from tessella.worker.limits import InputLimits

MODEL = ModelId("org/small")
NOW = 1_800_000_000.5
CHAIN = (
    Stage(PeerId("12D3KooWA"), LayerRange(0, 10)),
    Stage(PeerId("12D3KooWB"), LayerRange(10, 20)),
)
# Token ids that the tests use, with their bytes: 汉 is in two of them.
VOCABULARY = {
    0: b"</s>",
    1: b"Hel",
    2: b"lo",
    3: b"\xe6\xb1",
    4: b"\x89",
    5: b"!",
}
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/generate", "/v1/fim/completions")

Script = Callable[[CompletionRequest, Say], Awaitable[None]]


def begun(number: int = 0, cached: int = 0) -> Begun:
    return Begun(f"{number:032x}", MODEL, 7, cached, CHAIN)


def delta(text: str, token_id: int = 1, top: Sequence[Alternative] = ()) -> Delta:
    return Delta(text, token_id, -0.25, tuple(top))


def done(tokens: int, reason: str = "stop") -> Done:
    return Done(
        reason=reason,
        completion_tokens=tokens,
        queue_seconds=0.1,
        first_token_seconds=0.3,
        hops_seconds=0.05,
        total_seconds=1.3,
    )


def saying(*deltas: Delta | str, reason: str = "stop", cached: int = 0) -> Script:
    """Answers with these tokens, whatever is asked."""

    async def script(request: CompletionRequest, say: Say) -> None:
        await say(begun(cached=cached))
        for each in deltas:
            await say(delta(each) if isinstance(each, str) else each)
        await say(done(len(deltas), reason))

    return script


@dataclass
class Node:
    """What the routes lead to; a test changes its parts."""

    script: Script = field(default_factory=lambda: saying("Hello", "!"))
    tool_format: ToolFormat | None = ToolFormat.HERMES
    health: NodeStatus = NodeStatus.HEALTHY
    why: ModelUnavailable = field(default_factory=lambda: ModelUnavailable("it is not healthy"))
    limits: InputLimits | Exception = field(
        default_factory=lambda: InputLimits(
            context_size=256, max_input_tokens=200, source="measured"
        )
    )
    counters: Counters = field(default_factory=Counters)
    asked: list[CompletionRequest] = field(default_factory=list)
    answering: int = 0
    """Sessions that are open."""
    now: float = NOW

    def rooms(self) -> Rooms:
        return Rooms(
            model=MODEL,
            started=NOW,
            answer=self._answer,
            tool_format=lambda: self.tool_format,
            token_text=lambda token_id: VOCABULARY[token_id],
            status=lambda: {"status": self.health.value, "sessions": [{}], "kv_bytes": 12},
            health=lambda: self.health,
            unavailable=lambda: self.why,
            limits=self._limits,
            counters=self.counters,
        )

    def app(self) -> FastAPI:
        return node_app(self.rooms(), clock=lambda: self.now)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(self.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://node.test") as client:
            yield client

    async def _answer(self, request: CompletionRequest, say: Say) -> None:
        self.asked.append(request)
        self.answering += 1
        try:
            await trio.lowlevel.checkpoint()
            await self.script(request, say)
        finally:
            self.answering -= 1

    def _limits(self) -> InputLimits:
        if isinstance(self.limits, Exception):
            raise self.limits
        return self.limits


@pytest.fixture
def node() -> Node:
    return Node()


class Switch:
    """Leads one app, which takes long to make, to the node of each test."""

    def __init__(self) -> None:
        self.node = Node()
        self.app = node_app(self._rooms(), clock=lambda: self.node.now)

    def _rooms(self) -> Rooms:
        async def answer(request: CompletionRequest, say: Say) -> None:
            await self.node.rooms().answer(request, say)

        return Rooms(
            model=MODEL,
            started=NOW,
            answer=answer,
            tool_format=lambda: self.node.tool_format,
            token_text=lambda token_id: VOCABULARY[token_id],
            status=lambda: self.node.rooms().status(),
            health=lambda: self.node.health,
            unavailable=lambda: self.node.why,
            limits=lambda: self.node.rooms().limits(),
            counters=self.node.counters,
        )


@pytest.fixture(scope="session")
def switch() -> Switch:
    return Switch()


@pytest.fixture
async def client(node: Node, switch: Switch) -> AsyncIterator[httpx.AsyncClient]:
    switch.node = node
    transport = httpx.ASGITransport(switch.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://node.test") as client:
        yield client


def minimal(path: str, **more: Any) -> dict[str, Any]:
    """The least that a route is asked, and more."""
    needed: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
        "/v1/completions": {"prompt": "Hi"},
        "/v1/generate": {"prompt": "Hi"},
        "/v1/fim/completions": {"prefix": "fn main() {", "suffix": "}"},
    }
    return {**needed[path], **more}
