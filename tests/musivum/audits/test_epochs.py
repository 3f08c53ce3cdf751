"""Secrets are bound before they are used and told afterwards, so that draws can be checked."""

from __future__ import annotations

import hashlib

import pytest
from trio.testing import MockClock

from musivum.audits.epochs import EPOCH_SECONDS, Epochs, open_epochs
from musivum.ledger import Ledger
from musivum.store.memory import MemoryStore
from tessella.core.audits import is_drawn
from tessella.core.errors import StoreUnavailable
from tessella.core.identity import Identity
from tessella.core.ledger import open_entry
from tests.musivum.audits.room import Room

US = Identity(b"m" * 32)
BEGAN = 1_800_000_000.0


class Day:
    """A ledger, and a clock that a test moves."""

    def __init__(self) -> None:
        self.now = BEGAN
        self.store = MemoryStore()
        self.ledger = Ledger(US, self.store, lambda: self.now)

    async def open(self) -> Epochs:
        return await open_epochs(self.ledger, lambda: self.now)

    async def told(self) -> list[list[str]]:
        entries = [open_entry(payload) for payload in await self.ledger.page()]
        assert {entry.kind for entry in entries} == {"epoch"}
        return [entry.reason.split() for entry in entries]


def sealed(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()


async def test_a_secret_is_bound_before_it_is_used_and_told_after_a_day() -> None:
    day = Day()
    epochs = await day.open()
    first = epochs.secret
    assert await day.told() == [["commit", sealed(first)]]
    day.now += EPOCH_SECONDS - 1
    assert not await epochs.turn()
    day.now += 1
    assert await epochs.turn()
    assert epochs.secret != first
    assert (await day.told())[1:] == [["commit", sealed(epochs.secret)], ["secret", first.hex()]]


async def test_an_epoch_outlives_a_restart() -> None:
    day = Day()
    epochs = await day.open()
    again = await day.open()
    assert (again.secret, again.number) == (epochs.secret, epochs.number)
    assert len(await day.told()) == 1


async def test_a_day_that_ended_while_we_were_away_is_told_of_at_the_next_turn() -> None:
    day = Day()
    first = (await day.open()).secret
    day.now += 3 * EPOCH_SECONDS
    again = await day.open()
    assert again.secret == first
    await again.turn()
    assert (await day.told())[-1] == ["secret", first.hex()]
    assert again.number == 2


async def test_a_secret_is_told_once_whatever_ends_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    day = Day()
    epochs = await day.open()
    first = epochs.secret
    day.now += EPOCH_SECONDS
    write, calls = day.ledger.write, list[int]()

    async def fails_the_second_time(work: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise StoreUnavailable("the disk is full")
        return await write(work)  # type: ignore[arg-type]

    monkeypatch.setattr(day.ledger, "write", fails_the_second_time)
    with pytest.raises(StoreUnavailable):
        await epochs.turn()
    assert epochs.number == 2, "the next epoch has begun"
    assert ["secret", first.hex()] not in await day.told()
    again = await day.open()
    for _ in range(2):
        await again.turn()
        await epochs.turn()
    assert (await day.told()).count(["secret", first.hex()]) == 1
    assert (again.number, again.secret) == (2, epochs.secret)


async def test_anybody_can_check_afterwards_which_hops_had_to_be_drawn(
    room: Room, autojump_clock: MockClock
) -> None:
    worker = room.joins(1)
    hops = room.works(worker, 300)
    drawn = room.audits.counters()["drawn"]
    room.time.jump(EPOCH_SECONDS)
    await room.audits.tick()
    entries = await room.entries("epoch")
    secret = bytes.fromhex(entries[-1].reason.split()[1])
    assert entries[0].reason == f"commit {sealed(secret)}"
    shares = [1.0 if hop < 20 else max(0.05, hop**-0.5) for hop in range(300)]
    expected = [
        is_drawn(secret, hop.signed.digest, share) for hop, share in zip(hops, shares, strict=True)
    ]
    assert sum(expected) == drawn
