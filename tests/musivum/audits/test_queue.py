"""The queue has an end, and nobody can push others out of it."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from musivum.audits import queue
from musivum.audits.giving import MAX_HELD
from tessella.core.ids import PeerId
from tests.musivum.audits.room import (
    Room,
)


async def test_a_full_queue_drops_the_oldest_of_whoever_has_most(
    room: Room, worker: PeerId, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(queue, "MAX_OPEN", 4)
    quiet, auditor = room.joins(2), room.joins(11)
    room.works(quiet)
    hops = room.works(worker, 6)
    assert room.audits.counters()["dropped"] == 3
    assert room.audits.counters()["open"] == 4
    left = [room.audited_of(await room.gets(auditor)) for _ in range(MAX_HELD)]
    assert left[0].claim.worker == quiet
    assert left[1] == hops[3]
