"""Commands in a conversation: each does what it says, and an unknown one names the nearest."""

from __future__ import annotations

from pathlib import Path

import pytest
from trio.testing import MockClock

from tessella.cli.dialogue import Dialogue
from tessella.cli.session_file import load_session
from tessella.cli.slash import COMMANDS, SETTABLE, Outcome, changed, is_command, obey
from tessella.core.completions import ChatMessage
from tessella.core.errors import BadConfig, BadRequest
from tessella.core.sampling import Sampling
from tests.cli.scripted import Node, open_node

TURNS = [
    ChatMessage(role, text)
    for role, text in (("user", "1?"), ("assistant", "1!"), ("user", "2?"), ("assistant", "2!"))
]


def spoken(node: Node) -> Dialogue:
    return node.dialogue(turns=list(TURNS), session="s" * 32)


def test_a_slash_at_the_start_makes_a_command() -> None:
    assert is_command("/help")
    assert not is_command(" /help")
    assert not is_command("a/b")


@pytest.mark.parametrize(
    ("line", "near"),
    [("/undoo", "/undo"), ("/hlep", "/help"), ("/", "/set"), ("/汉", "/")],
)
async def test_an_unknown_command_names_the_nearest(line: str, near: str) -> None:
    async with open_node() as node:
        with pytest.raises(BadConfig, match=f"the nearest is {near}"):
            obey(spoken(node), line)


async def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    async with open_node() as node:
        assert obey(spoken(node), "/help") == Outcome()
    told = capsys.readouterr().err
    assert all(name in told for name in COMMANDS)


async def test_clear_begins_another_session(tmp_path: Path) -> None:
    async with open_node() as node:
        dialogue = spoken(node)
        dialogue.file = tmp_path / "s.json"
        obey(dialogue, "/system be brief")
        obey(dialogue, "/clear")
    saved = load_session(dialogue.file)
    assert saved is not None
    assert (saved.turns, saved.system) == ((), "be brief")
    assert len(saved.session) == 32
    assert saved.session != "s" * 32


async def test_a_system_message_is_set_shown_and_removed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_node() as node:
        dialogue = spoken(node)
        told = []
        for line in ("/system", "/system be  brief", "/system", "/system -"):
            obey(dialogue, line)
            told.append(capsys.readouterr().err.strip())
        with pytest.raises(BadConfig, match="--raw"):
            obey(node.dialogue(raw=True), "/system x")
    assert told == [
        "no system message",
        "system: be  brief",
        "system: be  brief",
        "no system message",
    ]


async def test_undo_and_retry_take_the_last_question_back() -> None:
    async with open_node() as node:
        dialogue = spoken(node)
        seed = dialogue.conversation.sampling.seed
        assert obey(dialogue, "/retry") == Outcome(question="2?")
        assert dialogue.conversation.sampling.seed != seed
        assert dialogue.conversation.turns == TURNS[:2]
        assert obey(dialogue, "/undo") == Outcome()
        assert dialogue.conversation.turns == []
        for line in ("/undo", "/retry"):
            with pytest.raises(BadConfig, match="nothing was said"):
                obey(dialogue, line)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("temperature", "0.5", 0.5),
        ("max_tokens", "9", 9),
        ("top_k", "3", 3),
        ("stop", "a b", ("a b",)),
        ("stop", "-", ()),
        ("seed", "", 0),
    ],
)
def test_a_setting_is_set(name: str, text: str, value: object) -> None:
    assert getattr(changed(Sampling(), name, text), name) == value


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("temprature", "1", "the nearest is temperature"),
        ("temperature", "warm", "temperature must be a number, not 'warm'"),
        ("max_tokens", "1.5", "max_tokens must be a whole number"),
        ("temperature", "9", "from 0 to 2"),
        ("top_p", "nan", "top_p"),
    ],
)
def test_a_setting_out_of_its_rule_is_named(name: str, text: str, told: str) -> None:
    with pytest.raises((BadConfig, BadRequest), match=told):
        changed(Sampling(), name, text)


async def test_settings_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    async with open_node() as node:
        dialogue = spoken(node)
        obey(dialogue, "/set top_p 0.5")
        assert capsys.readouterr().err == "top_p = 0.5\n"
        obey(dialogue, "/set")
    assert len(capsys.readouterr().err.splitlines()) == len(SETTABLE)


async def test_saving_writes_a_session_and_over_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("Dear")
    async with open_node() as node:
        dialogue = spoken(node)
        obey(dialogue, f"/save {tmp_path / 'kept.json'}")
        with pytest.raises(BadConfig, match="letter is no session"):
            obey(dialogue, f"/save {tmp_path / 'letter'}")
        with pytest.raises(BadConfig, match="which file"):
            obey(dialogue, "/save")
        with pytest.raises(BadConfig, match="chat"):
            obey(node.dialogue(raw=True), "/save x")
    saved = load_session(tmp_path / "kept.json")
    assert saved is not None
    assert list(saved.turns) == TURNS
    assert (tmp_path / "letter").read_text() == "Dear"


async def test_models_times_and_chains(
    capsys: pytest.CaptureFixture[str], autojump_clock: MockClock
) -> None:
    async with open_node() as node:
        node.reply = lambda _: node.says("x")
        dialogue = spoken(node)
        for line in ("/model", "/chain", "/timing"):
            obey(dialogue, line)
        assert dialogue.timing
        dialogue.conclude(await dialogue.answer("3?"))
        capsys.readouterr()
        for line in ("/model", "/chain", "/model other", "/timing"):
            obey(dialogue, line)
        told = capsys.readouterr().err
        assert (dialogue.timing, dialogue.asking.way.model) == (False, "other")
    assert "model: toy\nchain:\n  layers 0:2" in told
    assert "model: other" in told


async def test_quit_ends() -> None:
    async with open_node() as node:
        assert obey(spoken(node), "/quit").ends
        assert obey(spoken(node), "/exit").ends
