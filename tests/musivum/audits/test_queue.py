"""The queue has an end, and nobody can push others out of it."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from musivum.audits import queue
from musivum.audits.giving import MAX_HELD
from musivum.ledger import Disputed
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


async def test_of_whoever_has_most_disputes_go_last_and_come_up_again(
    room: Room, worker: PeerId, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(queue, "MAX_OPEN", 3)
    behind, other = room.joins(2), room.joins(3)
    disputes = [
        Disputed(hop.claim, hop.signed, hop.received_at)
        for hop in (room.hop([worker, behind]) for _ in range(3))
    ]
    room.works(other)
    room.audits.disputed(disputes[:1])
    room.works(worker)
    room.audits.disputed(disputes[1:2])
    opened = [(audit.worker, audit.decides) for audit in room.audits._open]
    assert opened == [(other, False), (worker, True), (worker, True)], "what was drawn went first"
    room.audits.disputed(disputes[2:])
    digests = [audit.claim.digest for audit in room.audits._open]
    assert digests[1:] == [each.claim.digest for each in disputes[1:]], "and nothing of others"
    room.audits.disputed(disputes[:1])
    assert disputes[0].claim.digest in [audit.claim.digest for audit in room.audits._open]
