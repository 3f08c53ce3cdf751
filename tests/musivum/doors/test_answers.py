"""Long answers are kept for a second, and no longer than they are true."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from musivum.bodies import mesh
from musivum.doors.answers import FRESH_SECONDS, KEPT_BYTES, MAX_KEPT, Answers
from musivum.doors.questions import Question
from tessella.core.errors import UnknownManifest


class Roster:
    """What `Answers` looks at."""

    def __init__(self) -> None:
        self.version = 1
        self.nodes = 0

    def __len__(self) -> int:
        return self.nodes


class Pages:
    """Counts how often it is asked, and answers with so many bytes."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.asked = 0

    def page(self, asked: mesh.OfAnyModel) -> list[str]:
        self.asked += 1
        if asked.model_id == "nobody":
            raise UnknownManifest("nobody")
        return [asked.model_id, str(self.asked), "x" * self.length]


QUESTION: Question[Any] = Question("/page", mesh.OfAnyModel, list[str], Pages.page)


def of(model: str) -> mesh.OfAnyModel:
    return mesh.OfAnyModel(model_id=model)


def answers(length: int) -> tuple[Answers, Pages, Roster]:
    pages, roster = Pages(length), Roster()
    return Answers(pages, roster), pages, roster  # type: ignore[arg-type]


async def test_a_short_answer_is_always_new(autojump_clock: MockClock) -> None:
    given, pages, _ = answers(10)
    assert json.loads(given.json(QUESTION, of("m")))[1] == "1"
    assert json.loads(given.json(QUESTION, of("m")))[1] == "2"
    assert pages.asked == 2


async def test_a_long_one_is_written_once_a_second(autojump_clock: MockClock) -> None:
    given, pages, _ = answers(KEPT_BYTES)
    first = given.json(QUESTION, of("m"))
    await trio.sleep(FRESH_SECONDS * 0.9)
    assert given.json(QUESTION, of("m")) is first
    assert json.loads(given.json(QUESTION, of("other")))[0] == "other"
    await trio.sleep(FRESH_SECONDS * 0.2)
    assert given.json(QUESTION, of("m")) != first
    assert pages.asked == 3


async def test_it_is_dropped_when_the_list_changes(autojump_clock: MockClock) -> None:
    given, pages, roster = answers(KEPT_BYTES)
    given.json(QUESTION, of("m"))
    roster.version += 1
    given.json(QUESTION, of("m"))
    assert pages.asked == 2


async def test_no_more_than_so_many_are_kept(autojump_clock: MockClock) -> None:
    given, pages, _ = answers(KEPT_BYTES)
    for number in range(MAX_KEPT + 1):
        given.json(QUESTION, of(str(number)))
    given.json(QUESTION, of(str(MAX_KEPT)))
    assert pages.asked == MAX_KEPT + 1
    given.json(QUESTION, of("0"))
    assert pages.asked == MAX_KEPT + 2


async def test_an_error_is_not_kept(autojump_clock: MockClock) -> None:
    given, pages, _ = answers(KEPT_BYTES)
    for _ in range(2):
        with pytest.raises(UnknownManifest):
            given.json(QUESTION, of("nobody"))
    assert pages.asked == 2
