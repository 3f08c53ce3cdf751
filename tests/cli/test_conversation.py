from __future__ import annotations

import pytest

from tessella.cli.conversation import Conversation, request_to_fill
from tessella.core.completions import Fill
from tessella.core.errors import BadConfig
from tessella.core.ids import ModelId
from tessella.core.sampling import Sampling

TOY = ModelId("toy")


def spoken(conversation: Conversation) -> list[tuple[str, str]]:
    return [(one.role, one.content) for one in conversation.request(TOY).messages]


def test_a_request_holds_the_system_message_and_all_turns() -> None:
    conversation = Conversation(system="be brief")
    conversation.ask("one?")
    conversation.answered("1")
    conversation.ask("two?")
    assert spoken(conversation) == [
        ("system", "be brief"),
        ("user", "one?"),
        ("assistant", "1"),
        ("user", "two?"),
    ]


def test_roles_alternate_after_an_answer_without_a_word() -> None:
    conversation = Conversation()
    conversation.ask("one?")
    conversation.answered("")
    conversation.ask("two?")
    assert spoken(conversation) == [("user", "two?")]


def test_the_oldest_turns_are_forgotten_and_the_last_question_never() -> None:
    conversation = Conversation(system="be brief")
    for number in range(2):
        conversation.ask(f"question {number}")
        conversation.answered(f"answer {number}")
    conversation.ask("last")
    assert conversation.forget_oldest()
    assert [text for _, text in spoken(conversation)][:2] == ["be brief", "question 1"]
    assert conversation.forget_oldest()
    assert not conversation.forget_oldest()
    assert spoken(conversation) == [("system", "be brief"), ("user", "last")]


def test_a_raw_prompt_travels_as_it_is_and_alone() -> None:
    conversation = Conversation(raw=True)
    conversation.ask("Once upon")
    conversation.answered(" a time")
    conversation.ask("  Twice upon ")
    request = conversation.request(TOY)
    assert (request.prompt, request.messages) == ("  Twice upon ", ())


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(BadConfig, match="empty"):
        Conversation().ask(" \n")
    with pytest.raises(BadConfig, match="the prompt is not UTF-8"):
        Conversation().ask("a\udcff")
    with pytest.raises(BadConfig, match="the prefix is not UTF-8"):
        request_to_fill(TOY, Fill("a\udcff", ""), Sampling())
    with pytest.raises(BadConfig, match="the system message is not UTF-8"):
        Conversation(system="\udcff")
    with pytest.raises(BadConfig, match="--system"):
        Conversation(raw=True, system="be brief")


def test_a_new_beginning_and_a_step_back() -> None:
    conversation = Conversation(session="s" * 32)
    conversation.ask("one?")
    conversation.answered("1")
    assert conversation.request(TOY).session == "s" * 32
    assert conversation.undo() == "one?"
    conversation.clear()
    assert conversation.session not in ("", "s" * 32)
    nameless = Conversation()
    nameless.clear()
    assert nameless.session == ""
