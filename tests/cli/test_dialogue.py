"""Questions and their answers, with a node that says what the test wants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trio.testing import MockClock

from tessella.cli.answer import Answer
from tessella.cli.chat_plan import answer_once
from tessella.cli.discovery import Way
from tessella.cli.session_file import load_session
from tessella.core.errors import RemoteFailure
from tessella.core.messages import Fail
from tests.cli.scripted import TOY, open_node

TOO_LONG = Fail(
    "context_length_exceeded", "the prompt is 9 tokens, this node's context is 8", False
)


async def test_one_prompt_is_answered_on_stdout(
    capsys: pytest.CaptureFixture[str], autojump_clock: MockClock
) -> None:
    async with open_node() as node:
        node.reply = lambda _: node.says("Par", "is", "")
        await answer_once(node.dialogue(), "capital?", as_json=False)
    shown = capsys.readouterr()
    assert shown.out == "Paris\n"
    assert f"layers 0:2      {node.host.address.peer_id}" in shown.err
    assert "3 tokens, 2.0 tok/s, first after 500 ms (stop)" in shown.err


async def test_json_is_exactly_one_line(
    capsys: pytest.CaptureFixture[str], autojump_clock: MockClock
) -> None:
    async with open_node() as node:
        node.reply = lambda _: node.says("Par\n", "汉")
        await answer_once(node.dialogue(), "capital?", as_json=True)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "text": "Par\n汉",
        "model": "toy",
        "prompt_tokens": 5,
        "cached_tokens": 0,
        "completion_tokens": 2,
        "finish_reason": "stop",
        "tok_s": 1.0,
        "ttft_ms": 500.0,
        "timing_ms": {"queue": 100.0, "prefill": 400.0, "decode": 1000.0, "hops": 200.0},
        "tier": None,
        "paid": False,
        "chain": [{"peer_id": node.host.address.peer_id, "layer_range": [0, 2]}],
    }


async def test_a_peer_is_asked_for_the_name_of_its_model(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        node.reply = lambda _: node.says("yes")
        dialogue = node.dialogue()
        dialogue.asking = node.asking(Way(peer=node.host.address))
        await dialogue.answer("there?")
    assert node.requests[0].model == TOY


async def test_a_second_question_carries_the_first_and_its_answer(
    autojump_clock: MockClock,
) -> None:
    async with open_node() as node:
        node.reply = lambda _: node.says("blue")
        dialogue = node.dialogue(system="be brief")
        await dialogue.answer("the sky?")
        await dialogue.answer("the sea?")
    assert [(one.role, one.content) for one in node.requests[1].messages] == [
        ("system", "be brief"),
        ("user", "the sky?"),
        ("assistant", "blue"),
        ("user", "the sea?"),
    ]


async def test_beyond_the_context_the_oldest_turns_go_and_it_is_said(
    capsys: pytest.CaptureFixture[str], autojump_clock: MockClock
) -> None:
    async with open_node() as node:
        node.reply = lambda request: [TOO_LONG] if len(request.messages) > 3 else node.says("yes")
        dialogue = node.dialogue()
        for text in ("1?", "2?", "3?"):
            await dialogue.answer(text)
    assert [len(request.messages) for request in node.requests] == [1, 3, 5, 3]
    assert capsys.readouterr().err.count("its oldest turn is dropped") == 1


async def test_a_question_longer_than_the_context_is_refused_and_forgotten(
    autojump_clock: MockClock,
) -> None:
    async with open_node() as node:
        node.reply = lambda request: (
            [TOO_LONG] if "long" in request.messages[-1].content else node.says("yes")
        )
        dialogue = node.dialogue()
        with pytest.raises(RemoteFailure, match="9 tokens"):
            await dialogue.answer("a long one?")
        await dialogue.answer("a short one?")
    assert [one.content for one in node.requests[-1].messages] == ["a short one?"]


async def test_what_was_cached_and_where_the_time_went_is_told(
    capsys: pytest.CaptureFixture[str], autojump_clock: MockClock
) -> None:
    async with open_node() as node:
        node.reply = lambda _: node.says("yes", cached=4)
        dialogue = node.dialogue()
        dialogue.timing = True
        for text in ("one?", "two?"):
            dialogue.conclude(await dialogue.answer(text))
    told = capsys.readouterr().err
    assert "(stop), cached 4 of 5 prompt tokens\n" in told
    assert "queue 100.0 ms, prefill 400.0 ms, decode 1000.0 ms, hops 200.0 ms; " in told
    assert told.count("chain:") == 2


async def test_a_conversation_is_kept_after_every_answer_and_every_half_of_one(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    file = tmp_path / "session.json"
    async with open_node() as node:
        node.reply = lambda request: (
            node.says("yes")
            if len(request.messages) == 1
            else [*node.says("half")[:2], Fail("internal_error", "a bug", False)]
        )
        dialogue = node.dialogue(session="s" * 32)
        dialogue.file = file
        await dialogue.answer("one?")
        first = load_session(file)
        with pytest.raises(RemoteFailure):
            await dialogue.answer("two?")
    second = load_session(file)
    assert first is not None
    assert second is not None
    assert [turn.content for turn in first.turns] == ["one?", "yes"]
    assert [turn.content for turn in second.turns] == ["one?", "yes", "two?", "half"]
    assert first.place is not None
    assert (first.place.model, first.place.address) == (TOY, node.host.address)


def test_an_answer_without_a_chain_tells_none(capsys: pytest.CaptureFixture[str]) -> None:
    from tessella.cli.dialogue import tell_numbers

    tell_numbers(Answer(finish_reason="stop"), chain=True, timing=True)
    assert "chain" not in capsys.readouterr().err
