"""The one writer: who shares a transaction, who is told what, and what a failure leaves behind."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from musivum.store import writer
from musivum.store.changes import Change, PutReputation, key_of
from musivum.store.database import Database
from musivum.store.records import Saved, SavedReputation
from musivum.store.writer import FLUSH_SECONDS, Store
from tessella.core.errors import LocalError, StoreLost, StoreUnavailable
from tessella.core.ids import PeerId


class Memory(Database):
    """A database that is a list of batches, and fails as it is told."""

    def __init__(self) -> None:
        self.name = "memory"
        self.lost = ""
        self.batches: list[tuple[Change, ...]] = []
        self.failure: Exception | None = None
        self.gate: threading.Event | None = None
        self.checks = 0
        self.interrupted = False

    def begin(self) -> None:
        raise NotImplementedError

    def is_passing(self, error: BaseException | None) -> bool:
        raise NotImplementedError

    def apply(self, changes: Iterable[Change]) -> None:
        if self.gate is not None:
            self.gate.wait(5)
        if self.failure is not None:
            raise self.failure
        self.batches.append(tuple(changes))

    def read(self) -> Saved:
        return Saved()

    def check(self) -> None:
        self.checks += 1
        if self.failure is not None:
            raise self.failure

    def interrupt(self) -> None:
        self.interrupted = True
        assert self.gate is not None
        self.gate.set()

    def kept(self) -> dict[tuple[str, str], Change]:
        return {key_of(change): change for batch in self.batches for change in batch}


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database works in no time: a virtual clock would not wait for its thread."""

    async def inline(_: Database, __: trio.CapacityLimiter, work: Callable[[], object]) -> object:
        await trio.lowlevel.checkpoint()
        return work()

    monkeypatch.setattr(writer, "in_thread", inline)


def joined(peer: str, joins: int = 0) -> PutReputation:
    return PutReputation(SavedReputation(peer_id=PeerId(peer), joins=joins))


@asynccontextmanager
async def writing(database: Memory) -> AsyncIterator[Store]:
    store = Store(database, trio.CapacityLimiter(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.write)
        try:
            yield store
        finally:
            store.stop()


async def test_callers_that_wait_together_share_a_transaction() -> None:
    database = Memory()
    async with writing(database) as store, trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(store.save, joined(str(number)))
    assert len(database.kept()) == 100
    assert len(database.batches) <= 3


async def test_a_batch_gathers_while_one_is_written() -> None:
    database = Memory()
    database.gate = threading.Event()
    async with writing(database) as store, trio.open_nursery() as nursery:
        nursery.start_soon(store.save, joined("first"))
        await wait_all_tasks_blocked()
        for number in range(50):
            nursery.start_soon(store.save, joined(str(number)))
        await wait_all_tasks_blocked()
        database.gate.set()
    assert [len(batch) for batch in database.batches] == [1, 50]


@pytest.mark.usefixtures("instant")
async def test_notes_are_written_once_a_second_and_the_last_of_each_record(
    autojump_clock: MockClock,
) -> None:
    database = Memory()
    async with writing(database) as store:
        for joins in range(10):
            store.note(joined("a", joins))
            await trio.sleep(FLUSH_SECONDS / 20)
        assert database.batches == []
        await trio.sleep(FLUSH_SECONDS / 2 + 0.01)
        assert database.batches == [(joined("a", 9),)]
        await trio.sleep(60)
        assert len(database.batches) == 1


@pytest.mark.usefixtures("instant")
async def test_notes_go_with_the_next_save(
    autojump_clock: MockClock,
) -> None:
    database = Memory()
    async with writing(database) as store:
        store.note(joined("a", 1), joined("b", 1))
        await store.save(joined("a", 2))
        assert [set(batch) for batch in database.batches] == [{joined("a", 2), joined("b", 1)}]
        await trio.sleep(60)
        assert len(database.batches) == 1


async def test_what_is_noted_is_written_when_it_stops() -> None:
    database = Memory()
    async with writing(database) as store:
        store.note(joined("a"))
    assert database.batches == [(joined("a"),)]
    with pytest.raises(LocalError, match="the store is closed"):
        store.note(joined("b"))
    with pytest.raises(LocalError, match="the store is closed"):
        await store.save(joined("b"))


async def test_a_save_is_not_undone_when_its_caller_leaves() -> None:
    database = Memory()
    database.gate = threading.Event()
    async with writing(database) as store:
        with trio.move_on_after(0.01) as scope:
            await store.save(joined("a"))
        assert scope.cancelled_caught
        database.gate.set()
        await store.save(joined("b"))
    assert database.batches == [(joined("a"),), (joined("b"),)]


@pytest.mark.usefixtures("instant")
async def test_without_room_saves_fail_notes_wait_and_then_it_goes_on(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    database = Memory()
    failures: list[StoreUnavailable] = []

    async def saves(store: Store, change: Change) -> None:
        try:
            await store.save(change)
        except StoreUnavailable as exc:
            failures.append(exc)

    async with writing(database) as store:
        database.failure = StoreUnavailable("memory: no room")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(saves, store, joined("a"))
            nursery.start_soon(saves, store, joined("b"))
        store.note(joined("noted"))
        await trio.sleep(3.5)
        assert [str(failure) for failure in failures] == ["memory: no room"] * 2
        assert failures[0] is not failures[1]
        assert database.batches == []
        database.failure = None
        await trio.sleep(FLUSH_SECONDS)
        assert database.batches == [(joined("noted"),)]
        await store.save(joined("c"))
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "nothing can be written: memory: no room",
        "memory: can be written again",
    ]


async def test_notes_that_find_no_room_at_the_end_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    database = Memory()
    database.failure = StoreUnavailable("memory: no room")
    async with writing(database) as store:
        store.note(joined("a"), joined("b"))
    assert caplog.records[-1].getMessage() == "memory: 2 notes are lost"


async def test_a_lost_database_is_told_to_all_and_tried_no_more() -> None:
    database = Memory()
    store = Store(database, trio.CapacityLimiter(1))
    told: list[StoreLost] = []

    async def saves(change: Change) -> None:
        try:
            await store.save(change)
        except StoreLost as exc:
            told.append(exc)

    async def write() -> None:
        with pytest.raises(StoreLost, match="memory: gone"):
            await store.write()

    database.failure = StoreLost("memory: gone")
    database.gate = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        nursery.start_soon(saves, joined("a"))
        await wait_all_tasks_blocked()
        nursery.start_soon(saves, joined("b"))
        await wait_all_tasks_blocked()
        database.gate.set()
    database.failure = None
    assert [str(error) for error in told] == ["memory: gone"] * 2
    for _ in range(2):
        with pytest.raises(StoreLost, match="memory: gone"):
            await store.save(joined("c"))
    with pytest.raises(StoreLost, match="memory: gone"):
        store.note(joined("c"))
    with pytest.raises(StoreLost, match="memory: gone"):
        await store.load()
    assert database.batches == []


async def test_a_bug_in_the_writer_wakes_its_callers() -> None:
    database = Memory()
    database.failure = ZeroDivisionError("a bug")
    store = Store(database, trio.CapacityLimiter(1))
    with pytest.RaisesGroup(ZeroDivisionError):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.write)
            with trio.CancelScope(shield=True), pytest.raises(StoreLost, match="writer failed"):
                await store.save(joined("a"))
            await trio.sleep_forever()


@pytest.mark.usefixtures("instant")
async def test_an_idle_database_is_asked_whether_it_is_still_ours(
    autojump_clock: MockClock,
) -> None:
    database = Memory()
    database.check_seconds = 2.0
    with pytest.RaisesGroup(pytest.RaisesExc(StoreLost, match="terminated")):
        async with writing(database):
            await trio.sleep(9)
            assert database.checks == 4
            database.failure = StoreLost("memory: terminated")
            await trio.sleep_forever()
    assert trio.current_time() < 20


async def test_a_call_without_an_end_is_interrupted() -> None:
    database = Memory()
    database.patience = 0.05
    database.gate = threading.Event()
    store = Store(database, trio.CapacityLimiter(1))
    with pytest.RaisesGroup(*[pytest.RaisesExc(StoreLost, match="no answer within")] * 2):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.write)
            with trio.CancelScope(shield=True):
                await store.save(joined("a"))
    assert database.interrupted
    assert "no answer" in database.lost
