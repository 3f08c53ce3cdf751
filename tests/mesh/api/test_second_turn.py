"""A conversation that goes on: no stage computes again what it has."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tessella.cli.processes import python_program
from tests.mesh.api.nodes import ANSWER_SECONDS, MODEL, RANGES, Document, Nodes

pytestmark = pytest.mark.mesh

QUESTIONS = ["What is the capital of France?", "And of Spain?"]
TOKENS = 8
Said = tuple[str, int, int, int]
"""An answer, and the tokens of its prompt, of them those cached, and of itself."""


def computed(nodes: Nodes) -> list[int]:
    """Positions, by each stage."""
    return [status["positions_computed"] for status in nodes.statuses()]


def hold(nodes: Nodes, ask: Callable[[str], Said]) -> list[Said]:
    """Both turns; every stage computed what was not held, and all tokens of answers but the last
    ones, which nothing follows."""
    turns, held = [], 0
    for question in QUESTIONS:
        before = computed(nodes)
        turns.append(ask(question))
        _, prompt, cached, answer = turns[-1]
        assert cached == held
        grown = [now - then for now, then in zip(computed(nodes), before, strict=True)]
        assert grown == [prompt - cached + answer - 1] * len(RANGES)
        held = prompt + answer - 1
    return turns


def test_a_second_turn_computes_what_is_new(nodes: Nodes, http: httpx.Client) -> None:
    messages: list[Document] = []

    def ask(question: str, **options: str) -> Said:
        messages.append({"role": "user", "content": question})
        asked = {"messages": messages, "max_tokens": TOKENS, "temperature": 0, **options}
        told = http.post("/v1/chat/completions", json=asked).json()
        text: str = told["choices"][0]["message"]["content"]
        messages.append({"role": "assistant", "content": text})
        usage = told["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return text, usage["prompt_tokens"], cached, usage["completion_tokens"]

    kept = hold(nodes, lambda question: ask(question, session="a name hard to guess"))
    messages.clear()
    anew = [ask(question) for question in QUESTIONS]
    assert [text for text, *_ in kept] == [text for text, *_ in anew]
    assert [cached for _, _, cached, _ in anew] == [0, 0]


def test_a_second_chat_goes_on_with_the_file_of_the_first(nodes: Nodes, tmp_path: Path) -> None:
    file = tmp_path / "session.json"

    def ask(question: str) -> Said:
        flags = ("-a", nodes.entry, "--model-id", MODEL, "chat", "--session-file", str(file))
        ended = subprocess.run(
            python_program(
                "tessella.cli.main", *flags, f"--max-tokens={TOKENS}", "--json", question
            ),
            env={**os.environ, "HOME": str(tmp_path), "TESSELLA_HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_SECONDS,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr.decode()
        told = json.loads(ended.stdout)
        return (
            told["text"],
            told["prompt_tokens"],
            told["cached_tokens"],
            told["completion_tokens"],
        )

    said = hold(nodes, ask)
    turns = json.loads(file.read_text())["turns"]
    assert [turn["content"] for turn in turns[::2]] == QUESTIONS
    assert [turn["content"] for turn in turns[1::2]] == [text for text, *_ in said]
