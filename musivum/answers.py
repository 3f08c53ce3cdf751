"""Answers to public questions as JSON, and the long ones kept for a second.

A list of thousands of nodes takes a tenth of a second to write, and anyone may ask for it. What
is kept is dropped as soon as a node's listing changes; only its measurements may be a second old.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import trio
from pydantic import BaseModel

from musivum.pages import Pages
from musivum.questions import Question, render
from musivum.roster import Roster
from tessella.core.frames import KIB

FRESH_SECONDS = 1.0
# Some hundred nodes.
KEPT_BYTES = 64 * KIB
# Of different questions: one of a model each, and those of all.
MAX_KEPT = 64


@dataclass(frozen=True, slots=True)
class _Kept:
    data: bytes
    version: int
    until: float


class Answers:
    """What both doors give away."""

    def __init__(self, pages: Pages, roster: Roster) -> None:
        self._pages = pages
        self._roster = roster
        self._kept: dict[tuple[str, BaseModel], _Kept] = {}

    def json(self, question: Question[Any], asked: BaseModel) -> bytes:
        """The answer to a public question. Raises whatever the page raises."""
        key, now = (question.path, asked), trio.current_time()
        kept = self._kept.get(key)
        if kept and kept.version == self._roster.version and now < kept.until:
            return kept.data
        data = render(question, question.answer(self._pages, asked))
        self._kept.pop(key, None)
        if len(data) >= KEPT_BYTES:
            while len(self._kept) >= MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = _Kept(data, self._roster.version, now + FRESH_SECONDS)
        return data
