"""Several lines as one message."""

from __future__ import annotations

import pytest

from tessella.cli import typed
from tessella.cli.typed import MORE, PROMPT, read_message
from tests.cli.scripted import lines

CASES: list[tuple[list[str | None], str | None]] = [
    (["one"], "one"),
    ([""], ""),
    ([None], None),
    (["one\\", "two\\", "three"], "one\ntwo\nthree"),
    (["one\\", None], None),
    (['"""one', "two", 'three"""'], "one\ntwo\nthree"),
    (['"""', "  one\\", "", "two", '"""'], "  one\\\n\ntwo"),
    (['"""one"""'], "one"),
    (['""""""'], ""),
    (['"""one', None], None),
    (['say """', "next"], 'say """'),
]


@pytest.mark.parametrize(("said", "message"), CASES)
async def test_messages(said: list[str | None], message: str | None) -> None:
    assert await read_message(lines(*said)) == message


async def test_more_of_a_message_is_asked_for_otherwise() -> None:
    prompts: list[str] = []
    waiting = ["one\\", "two"]

    async def read(prompt: str) -> str | None:
        prompts.append(prompt)
        return waiting.pop(0)

    await read_message(read)
    assert prompts == [PROMPT, MORE]


async def test_a_message_without_an_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed, "MAX_TYPED", 10)
    assert await read_message(lines('"""', *["12345"] * 9)) == "12345\n12345\n12345"
    assert await read_message(lines(*["1234\\"] * 9)) == "1234\n1234\n1234\n1234\\"
