"""A client that leaves: at no stage is anything kept for it, however far its answer was."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import pytest

from tests.mesh.api.nodes import Document, Nodes

pytestmark = pytest.mark.mesh

FREED_SECONDS = 1.0
"""How soon after its client left a session holds nothing, anywhere."""
LOOK_SECONDS = 0.01
BOUND = 20.0
# Some 300 tokens: three chunks of a prefill, a second of arithmetic at each stage.
LONG = "word " * 280
MANY = 6


def ask(nodes: Nodes, prompt: str, *, stream: bool) -> socket.socket:
    """A connection that asked for 200 tokens."""
    where = urlsplit(nodes.entry)
    body = json.dumps({"prompt": prompt, "max_tokens": 200, "stream": stream}).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {where.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    client = socket.create_connection((where.hostname or "", where.port or 0), BOUND)
    client.sendall(head.encode() + body)
    return client


def wait_until(reached: Callable[[], bool], seconds: float) -> float:
    """Seconds until it is so; it has to be within those given."""
    began = time.monotonic()
    while not reached():
        assert time.monotonic() - began < seconds
        time.sleep(LOOK_SECONDS)
    return time.monotonic() - began


def held(nodes: Nodes) -> list[list[int]]:
    """Positions of each session that is live, by stage."""
    return [
        [one["held"] for one in status["sessions"] if one["state"] != "parked"]
        for status in nodes.statuses()
    ]


def has_come_through(nodes: Nodes, positions: int) -> bool:
    """Whether the last stage holds so many of one session."""
    return max(held(nodes)[-1], default=0) >= positions


def kept(nodes: Nodes) -> list[list[Document]]:
    """All sessions of each stage: conversations of other tests may be parked."""
    return [status["sessions"] for status in nodes.statuses()]


Freed = Callable[[], None]


@pytest.fixture
def is_freed(nodes: Nodes) -> Freed:
    """Looks whether in time, from then on, every stage has what it had before."""
    wait_until(lambda: not any(held(nodes)), BOUND)
    before = kept(nodes)

    def look() -> None:
        took = wait_until(lambda: kept(nodes) == before, FREED_SECONDS)
        print(f"freed after {took * 1000:.0f} ms")  # noqa: T201 - what a run is for

    return look


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_in_the_queue_and_in_the_prefill(nodes: Nodes, is_freed: Freed, stream: bool) -> None:
    with ExitStack() as clients:
        for _ in range(MANY):
            clients.enter_context(closing(ask(nodes, LONG, stream=stream)))
        # One is computed, the others wait for it.
        wait_until(lambda: len(held(nodes)[0]) == MANY, BOUND)
        assert 0 in held(nodes)[0]
    is_freed()


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_in_the_prefill_of_all_stages(nodes: Nodes, is_freed: Freed, stream: bool) -> None:
    with closing(ask(nodes, LONG, stream=stream)):
        wait_until(lambda: has_come_through(nodes, 1), BOUND)
        assert not has_come_through(nodes, 281)
    is_freed()


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_among_the_tokens(nodes: Nodes, is_freed: Freed, stream: bool) -> None:
    with closing(ask(nodes, "1, 2, 3, 4,", stream=stream)) as client:
        # Eleven of the prompt.
        wait_until(lambda: has_come_through(nodes, 16), BOUND)
        if stream:
            assert b"data: {" in client.recv(65536)
    is_freed()
