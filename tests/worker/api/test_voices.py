"""What an answer's messages make showable, and what waits for it."""

from __future__ import annotations

import pytest

from tessella.core.errors import LocalError
from tessella.core.messages import Alternative
from tessella.core.tool_calls import ToolCallReader, ToolFormat
from tessella.worker.api.voices import Mark, Part, Voice
from tests.worker.api.conftest import begun, delta, done

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def hermes(*, parallel: bool = True) -> Voice:
    return Voice(ToolCallReader(ToolFormat.HERMES), parallel=parallel)


def told(voice: Voice, *texts: str, reason: str = "stop") -> list[Part]:
    parts = [part for each in texts if (part := voice.hear(delta(each))) is not None]
    return [*parts, voice.end(done(len(texts), reason))]


def test_text_comes_as_it_is_and_marks_wait_for_it() -> None:
    voice = Voice(None)
    top = (Alternative(2, -1.0),)
    assert voice.hear(delta("Hel", 1)) == Part("Hel", (), (Mark(1, -0.25, (), 0),))
    assert voice.hear(delta("", 3, top)) is None
    assert voice.hear(delta("汉", 4)) == Part(
        "汉", (), (Mark(3, -0.25, top, 3), Mark(4, -0.25, (), 3))
    )
    assert voice.hear(delta("", 0)) is None
    assert voice.end(done(4)) == Part("", (), (Mark(0, -0.25, (), 4),))
    assert (voice.reason, voice.done.completion_tokens) == ("stop", 4)


def test_it_opens_with_its_first_token_and_may_begin_anew_before_it() -> None:
    voice = Voice(None)
    with pytest.raises(LocalError, match="did not begin"):
        _ = voice.begun
    voice.begin(begun(1))
    voice.begin(begun(2))
    assert voice.begun == begun(2)
    assert not voice.opened
    voice.hear(delta(""))
    assert voice.opened
    with pytest.raises(LocalError, match="did not end"):
        _ = voice.done


def test_a_call_is_no_text() -> None:
    voice = hermes()
    parts = told(voice, "Let me see. ", *CALL, "")
    assert "".join(part.text for part in parts) == "Let me see."
    (call,) = [call for part in parts for call in part.calls]
    assert (call.index, call.name, call.arguments) == (0, "f", '{"a":1}')
    assert call.id.startswith("call_")
    assert len(call.id) == len("call_") + 24
    assert voice.reason == "tool_calls"


def test_calls_have_ids_of_their_own_and_can_be_limited_to_one() -> None:
    first, second = [call for part in told(hermes(), CALL + CALL) for call in part.calls]
    assert (first.index, second.index) == (0, 1)
    assert first.id != second.id
    only = told(hermes(parallel=False), CALL + CALL)
    assert [call.index for part in only for call in part.calls] == [0]


def test_a_call_that_was_cut_off_is_text() -> None:
    voice = hermes()
    parts = told(voice, "<tool_call>", '{"name": "f"', reason="length")
    assert "".join(part.text for part in parts) == '<tool_call>{"name": "f"'
    assert voice.reason == "length"


def test_an_answer_that_was_cut_off_behind_a_call_says_so() -> None:
    voice = hermes()
    told(voice, CALL, "<tool_call>{", reason="length")
    assert voice.reason == "length"
