"""Sixteen conversations at once through three hops, while the entry tells how it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import httpx
import pytest

from tests.mesh.api.nodes import SLOTS, Nodes

pytestmark = pytest.mark.mesh

# Of many lengths, so that some are computed while others are read.
PROMPTS = [
    "The capital of France is",
    "Water is made of",
    "1, 2, 3, 4,",
    "def add(a, b):",
    "Once upon a time, in a village at the foot of a mountain, there lived a",
    "The opposite of hot is",
    "Roses are red, violets are",
    "In 1969, the first people walked on",
    "Bread is baked from flour, water, salt and",
    "<html><head><title>",
    "Monday, Tuesday, Wednesday,",
    "The largest planet of the solar system, which is five times as far from the sun as we are, is",
    "A cat says",
    "Dear Sir or Madam,\n\nI am writing to you because",
    "x = 3; y = 4; x + y =",
    "To be, or not to be, that is",
]
TOKENS = 4
LEAST_TEXTS = 8
POLL_SECONDS = 0.05
PROMPT_SECONDS = 0.1
"""Within this the entry tells its status, 19 times in 20, whatever it computes."""


def answer(client: httpx.Client, prompt: str) -> str:
    """The greedy continuation of a text."""
    asked = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
    said = client.post("/v1/completions", json=asked)
    assert said.status_code == 200, said.text
    text: str = said.json()["choices"][0]["text"]
    return text


@contextmanager
def asking_for_status(client: httpx.Client) -> Iterator[list[float]]:
    """Seconds that each GET /status takes, every POLL_SECONDS while the context lasts."""
    took: list[float] = []
    stop = Event()

    def ask() -> None:
        while not stop.wait(POLL_SECONDS):
            began = time.perf_counter()
            assert client.get("/status").status_code == 200
            took.append(time.perf_counter() - began)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            yield took
        finally:
            stop.set()
            asking.result()


def rounds(nodes: Nodes, http: httpx.Client, count: int) -> float:
    """So many rounds of all prompts at once; seconds of GET /status, the 95th percentile."""
    alone = [answer(http, prompt) for prompt in PROMPTS]
    assert len(set(alone)) >= LEAST_TEXTS
    opened = [status["sessions_opened"] for status in nodes.statuses()]
    with asking_for_status(http) as took, ThreadPoolExecutor(SLOTS) as pool:
        for _ in range(count):
            together = list(pool.map(lambda prompt: answer(http, prompt), PROMPTS))
            assert together == alone
    more = [status["sessions_opened"] for status in nodes.statuses()]
    assert [now - then for now, then in zip(more, opened, strict=True)] == [count * SLOTS] * 3
    took.sort()
    slow = took[len(took) * 95 // 100]
    print(  # noqa: T201 - what a run is for
        f"GET /status, {len(took)} times: p50 {took[len(took) // 2] * 1000:.0f} ms, "
        f"p95 {slow * 1000:.0f} ms, at most {took[-1] * 1000:.0f} ms"
    )
    return slow


def test_each_of_sixteen_at_once_is_answered_as_if_alone(nodes: Nodes, http: httpx.Client) -> None:
    assert len(PROMPTS) == SLOTS
    rounds(nodes, http, 2)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_entry_tells_its_status_meanwhile_in_a_tenth_of_a_second(
    nodes: Nodes, http: httpx.Client
) -> None:
    # Half a minute of them, and some hundreds of answers: a percentile that one pause cannot move.
    assert rounds(nodes, http, 5) < PROMPT_SECONDS
