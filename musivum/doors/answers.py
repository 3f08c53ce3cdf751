"""Answers to public questions, and those that were dear to write kept for a second.

A list of thousands of nodes takes a tenth of a second to write, and anyone may ask for it. What
is kept is dropped as soon as a node's listing changes; only its measurements may be a second old.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import trio
from pydantic import BaseModel

from musivum.doors.questions import Question, render
from musivum.nodes.roster import Roster
from musivum.pages.mesh import Pages
from tessella.core.frames import KIB, MAX_LIST_FRAME
from tessella.core.ids import ModelId
from tessella.core.peers import PeerRow, encode_rows

logger = logging.getLogger(__name__)

FRESH_SECONDS = 1.0
# Some hundred nodes in one answer, or in the mesh that one answer was made of.
KEPT_BYTES = 64 * KIB
MANY_NODES = 500
# Of different questions: one of a model each, and those of all.
MAX_KEPT = 64
# What stands around the rows in their frame.
_LIST_BYTES = MAX_LIST_FRAME - KIB


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
        self._kept: dict[Hashable, _Kept] = {}

    def json(self, question: Question[Any], asked: BaseModel) -> bytes:
        """The answer to a public question. Raises whatever the page raises."""
        return self._fresh(
            (question.path, asked),
            lambda: render(question, question.answer(self._pages, asked)),
        )

    def rows(self, model: ModelId) -> bytes:
        """The nodes of a model, or of all, as a peer list."""

        def write() -> bytes:
            nodes = self._roster.nodes(model or None)
            return list_of((node.row for node in nodes), _LIST_BYTES)

        return self._fresh(("rows", model), write)

    def _fresh(self, key: Hashable, write: Callable[[], bytes]) -> bytes:
        now = trio.current_time()
        kept = self._kept.get(key)
        if kept and kept.version == self._roster.version and now < kept.until:
            return kept.data
        data = write()
        self._kept.pop(key, None)
        if len(data) >= KEPT_BYTES or len(self._roster) >= MANY_NODES:
            while len(self._kept) >= MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = _Kept(data, self._roster.version, now + FRESH_SECONDS)
        return data


def list_of(rows: Iterable[PeerRow], limit: int) -> bytes:
    """Rows as a peer list of at most `limit` bytes: those that serve stay, if not all fit."""
    kept = sorted(rows, key=lambda row: (not row.serves, row.peer_id))
    data = encode_rows(kept)
    while kept and len(data) > limit:
        logger.warning("peer list cut: %s rows are %s bytes", len(kept), len(data))
        # In proportion, and one less, so that this ends.
        kept = kept[: max(0, len(kept) * limit // len(data) - 1)]
        data = encode_rows(kept)
    return data
