"""The book, in a real file. A crash is a connection that is closed in the middle."""

from __future__ import annotations

import math
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tessella.core.errors import StoreLost, StoreUnavailable
from tessella.core.identity import Identity, check_signature
from tessella.core.messages import Proof, decode_sealed
from tessella.core.proofs import PURPOSE_PROOF, read_claim
from tessella.core.settlement import Became, Outcome
from tessella.worker.proofs import book as book_module
from tessella.worker.proofs.book import Answer, Owed, ProofBook, open_book
from tessella.worker.proofs.totals import Totals, read_summary
from tessella.worker.proofs.witness import Bill

MakeBill = Callable[..., Bill]
NOW = 1_700.0
ALL = (1000, 10**9)


def clock() -> float:
    return NOW


def proof_of(owed: Owed) -> Proof:
    return decode_sealed(owed.proof.payload, Proof)


async def test_what_is_served_is_counted_and_proved_at_once(
    path: Path, worker: Identity, musivum_key: Identity, a_bill: MakeBill
) -> None:
    async with open_book(path, worker, clock) as book:
        await book.serve(a_bill(1, sketch=b"s"))
        (owed,) = await book.due(*ALL)
        assert book.totals == Totals(1, 7 * 6, 1, 0, 0, 0)
    claim = read_claim(owed.proof, {musivum_key.peer_id}, NOW)
    assert (claim.worker, claim.request_id) == (worker.peer_id, (1).to_bytes(16, "big"))
    assert (claim.proof.start, claim.proof.outputs.stop, claim.proof.sketch) == (3, 10, b"s")
    assert claim.proof.finished_at == NOW


async def test_proofs_of_a_node_are_a_chain_over_all_its_runs(
    path: Path, worker: Identity, a_bill: MakeBill
) -> None:
    for first in (0, 3):
        async with open_book(path, worker, clock) as book:
            for number in range(first, first + 3):
                await book.serve(a_bill(number))
            owed = await book.due(*ALL)
    proofs = [proof_of(each) for each in owed]
    assert [proof.sequence for proof in proofs] == [int(NOW * 1000) + each for each in range(6)]
    assert proofs[0].previous == b""
    for before, after in pairwise(owed):
        assert proof_of(after).previous == before.proof.digest
    for each in owed:
        check_signature(worker.peer_id, PURPOSE_PROOF, each.proof.payload, each.proof.signature)


async def test_a_book_that_was_lost_uses_no_number_again(
    tmp_path: Path, worker: Identity, a_bill: MakeBill
) -> None:
    sequences = []
    for run, now in enumerate((NOW, NOW + 0.5)):
        async with open_book(tmp_path / f"{run}.db", worker, partial(float, now)) as book:
            for number in range(3):
                await book.serve(a_bill(number))
            sequences += [owed.sequence for owed in await book.due(*ALL)]
    assert len(set(sequences)) == 6


async def test_a_ticket_has_one_proof(path: Path, worker: Identity, a_bill: MakeBill) -> None:
    async with open_book(path, worker, clock) as book:
        await book.serve(a_bill(1))
        await book.serve(a_bill(1, stop=20))
        (owed,) = await book.due(*ALL)
        assert proof_of(owed).outputs.stop == 10
        assert book.totals.sessions == 1


async def test_a_proof_that_is_held_is_sent_later_and_replaced_until_then(
    path: Path, worker: Identity, a_bill: MakeBill, inline: None, autojump_clock: MockClock
) -> None:
    async with open_book(path, worker, clock) as book:
        await book.serve(a_bill(1), hold=15.0)
        await book.serve(a_bill(2), hold=15.0)
        assert await book.due(*ALL) == []
        assert await book.next_due() == trio.current_time() + 15.0
        await book.serve(a_bill(1, stop=20))
        (owed,) = await book.due(*ALL)
        assert proof_of(owed).outputs.stop == 20
        assert book.totals == Totals(2, 6 * (17 + 7), 2, 0, 0, 0)
        await trio.sleep(15.0)
        await book.serve(a_bill(2, stop=30), hold=15.0)
        assert [proof_of(each).outputs.stop for each in await book.due(*ALL)] == [20]
        await trio.sleep(60.0)
        await book.serve(a_bill(2, stop=29))
        assert [proof_of(each).outputs.stop for each in await book.due(*ALL)] == [20, 30]
        # Once it was to be brought, it may have come.
        await book.serve(a_bill(2, stop=40))
        assert [proof_of(each).outputs.stop for each in await book.due(*ALL)] == [20, 30]


async def test_what_is_due_comes_in_order_and_bounded(
    path: Path, worker: Identity, a_bill: MakeBill
) -> None:
    async with open_book(path, worker, clock) as book:
        for number in range(5):
            await book.serve(a_bill(number))
        everything = await book.due(*ALL)
        size = sum(len(each.proof.payload) for each in everything[:2])
        assert await book.due(3, 10**9) == everything[:3]
        assert await book.due(1000, size) == everything[:2]
        assert await book.due(1000, size - 1) == everything[:1]
        assert await book.due(1000, 1) == everything[:1]


SETTLED = [
    (Outcome(Became.PAID, 42), "paid"),
    (Outcome(Became.ALREADY_PAID, 42), "paid"),
    (Outcome(Became.PAID, 0), "paid"),
    (Outcome(Became.REFUSED, 0, "unattested", "no neighbour"), "refused"),
]


@pytest.mark.parametrize(("outcome", "state"), SETTLED)
async def test_what_is_settled_is_counted_once_and_asked_about_no_more(
    path: Path, worker: Identity, a_bill: MakeBill, outcome: Outcome, state: str
) -> None:
    async with open_book(path, worker, clock) as book:
        await book.serve(a_bill(1))
        (owed,) = await book.due(*ALL)
        for _ in range(2):
            await book.record([Answer(owed.sequence, outcome, 0.0)])
        assert await book.due(*ALL) == []
        assert await book.next_due() == math.inf
        paid = int(state == "paid")
        assert book.totals == Totals(1, 42, 0, paid, 1 - paid, outcome.micro)
    (settled,) = read_summary(path, 5).last
    assert (settled.state, settled.micro, settled.code) == (state, outcome.micro, outcome.code)


async def test_what_waits_is_asked_about_when_it_is_due_and_at_the_next_start(
    path: Path, worker: Identity, a_bill: MakeBill, inline: None, autojump_clock: MockClock
) -> None:
    waiting = Outcome(Became.WAITING)
    async with open_book(path, worker, clock) as book:
        await book.serve(a_bill(1))
        (owed,) = await book.due(*ALL)
        later = trio.current_time() + 5.0
        await book.record([Answer(owed.sequence, waiting, later)])
        assert await book.due(*ALL) == []
        assert await book.next_due() == later
        await trio.sleep(5.0)
        assert [each.asks for each in await book.due(*ALL)] == [1]
        await book.record([Answer(owed.sequence, waiting, later + 600.0)])
    summary = read_summary(path, 5)
    assert (summary.unsent, summary.waiting, summary.last) == (0, 1, ())
    async with open_book(path, worker, clock) as book:
        assert [each.sequence for each in await book.due(*ALL)] == [owed.sequence]


async def test_one_that_is_put_off_keeps_its_state(
    path: Path, worker: Identity, a_bill: MakeBill, inline: None, autojump_clock: MockClock
) -> None:
    async with open_book(path, worker, clock) as book:
        await book.serve(a_bill(1))
        (owed,) = await book.due(*ALL)
        await book.put_off(owed.sequence, trio.current_time() + 5.0)
        assert await book.due(*ALL) == []
        # It was brought already: what replaced it would be a second proof.
        await book.serve(a_bill(1, stop=20))
        assert book.totals.layer_positions == 42
    assert read_summary(path, 5).unsent == 1


async def test_old_settled_proofs_go_and_the_totals_stay(
    path: Path, worker: Identity, a_bill: MakeBill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_module, "KEEP_SETTLED", 3)
    async with open_book(path, worker, clock) as book:
        for number in range(6):
            await book.serve(a_bill(number))
        owed = await book.due(*ALL)
        paid = [Answer(each.sequence, Outcome(Became.PAID, 5), 0.0) for each in owed[:5]]
        await book.record(paid)
        assert book.totals == Totals(6, 6 * 42, 1, 5, 0, 25)
    summary = read_summary(path, 100)
    assert [each.request_id[-1] for each in summary.last] == [4, 3, 2]
    assert summary.unsent == 1


def tables(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return [*db.execute("SELECT * FROM book"), *db.execute("SELECT * FROM proofs")]


# Of a bill: what a crash may come before. The last is the commit.
@pytest.mark.parametrize("after", range(5))
async def test_a_crash_between_statements_leaves_neither_count_nor_proof(
    path: Path, worker: Identity, a_bill: MakeBill, after: int
) -> None:
    async with open_book(path, worker, clock) as book:
        await book.serve(a_bill(1))
    before = tables(path)
    async with open_book(path, worker, clock) as book:
        statements: list[str] = []

        def crash(statement: str) -> None:
            if statement.startswith(("BEGIN", "SELECT", "INSERT", "UPDATE", "COMMIT")):
                statements.append(statement)

        book._db.set_trace_callback(crash)
        real = book._db

        class Dying:
            """The connection, closed without a commit at one statement."""

            in_transaction = False

            def execute(self, *args: object) -> sqlite3.Cursor:
                if len(statements) > after:
                    real.close()
                return real.execute(*args)  # type: ignore[arg-type]

        book._db = Dying()  # type: ignore[assignment]
        with pytest.raises(StoreLost):
            await book.serve(a_bill(2))
    assert len(statements) == after + 1
    assert tables(path) == before


async def test_a_commit_that_was_answered_outlives_a_crash(
    path: Path, worker: Identity, a_bill: MakeBill, tmp_path: Path
) -> None:
    copy = tmp_path / "crashed.db"
    async with open_book(path, worker, clock) as book:
        await book.serve(a_bill(1))
        # What is in the files at this moment is all that a killed process leaves.
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    async with open_book(copy, worker, clock) as book:
        assert len(await book.due(*ALL)) == book.totals.sessions == 1


class Broken:
    """A connection whose commits fail with one of SQLite's errors."""

    def __init__(self, db: sqlite3.Connection, code: int) -> None:
        self.db, self.code = db, code

    @property
    def in_transaction(self) -> bool:
        return self.db.in_transaction

    def execute(self, statement: str, *args: object) -> sqlite3.Cursor:
        if statement == "COMMIT" and self.code:
            error = sqlite3.OperationalError("disk trouble")
            error.sqlite_errorcode = self.code
            raise error
        return self.db.execute(statement, *args)  # type: ignore[arg-type]

    def interrupt(self) -> None:
        self.db.interrupt()


def break_disk(book: ProofBook, code: int) -> Broken:
    broken = Broken(book._db, code)
    book._db = broken  # type: ignore[assignment]
    return broken


async def test_a_full_disk_refuses_and_is_tried_until_it_has_room(
    path: Path, worker: Identity, a_bill: MakeBill, inline: None, autojump_clock: MockClock
) -> None:
    async with open_book(path, worker, clock) as book, trio.open_nursery() as nursery:
        nursery.start_soon(book.run, 300.0)
        disk = break_disk(book, sqlite3.SQLITE_FULL)
        book.check_writable()
        with pytest.raises(StoreUnavailable, match="disk trouble"):
            await book.serve(a_bill(1))
        with pytest.raises(StoreUnavailable, match="disk trouble"):
            book.check_writable()
        await trio.sleep(10.0)
        with pytest.raises(StoreUnavailable):
            book.check_writable()
        assert book.totals.sessions == 0
        disk.code = 0
        await trio.sleep(2.1)
        book.check_writable()
        await book.serve(a_bill(1))
        assert book.totals.sessions == 1
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_CORRUPT])
async def test_a_disk_that_fails_ends_the_program(
    path: Path,
    worker: Identity,
    a_bill: MakeBill,
    inline: None,
    autojump_clock: MockClock,
    code: int,
) -> None:
    async with open_book(path, worker, clock) as book:
        ended: list[StoreLost] = []

        async def run() -> None:
            with pytest.raises(StoreLost) as caught:
                await book.run(300.0)
            ended.append(caught.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await wait_all_tasks_blocked()
            disk = break_disk(book, code)
            with pytest.raises(StoreLost, match="disk trouble"):
                await book.serve(a_bill(1))
        assert len(ended) == 1
        disk.code = 0
        for call in (book.serve(a_bill(2)), book.due(*ALL), book.next_due()):
            with pytest.raises(StoreLost, match="disk trouble"):
                await call
        with pytest.raises(StoreLost):
            book.check_writable()


async def test_too_many_that_nobody_settles_are_a_reason_to_serve_nobody(
    path: Path, worker: Identity, a_bill: MakeBill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_module, "MAX_UNSETTLED", 2)
    async with open_book(path, worker, clock) as book:
        for number in range(2):
            book.check_writable()
            await book.serve(a_bill(number))
        with pytest.raises(StoreUnavailable, match="2 proofs already wait"):
            book.check_writable()


def size_of(path: Path) -> int:
    return path.stat().st_size


async def test_the_log_is_folded_into_the_file_at_the_interval(
    path: Path, worker: Identity, a_bill: MakeBill, inline: None, autojump_clock: MockClock
) -> None:
    async with open_book(path, worker, clock) as book, trio.open_nursery() as nursery:
        nursery.start_soon(book.run, 60.0)
        await book.serve(a_bill(1))
        size = size_of(path)
        await trio.sleep(59.0)
        assert size_of(path) == size
        await trio.sleep(2.0)
        assert size_of(path) > size
        nursery.cancel_scope.cancel()


async def test_only_the_owner_can_read_it(path: Path, worker: Identity, a_bill: MakeBill) -> None:
    async with open_book(path, worker, clock) as book:
        await book.serve(a_bill(1))
        for each in path.parent.iterdir():
            assert stat.S_IMODE(each.stat().st_mode) == 0o600, each


async def test_another_proof_is_noticed(path: Path, worker: Identity, a_bill: MakeBill) -> None:
    async with open_book(path, worker, clock) as book:
        written = book.written
        await book.serve(a_bill(1))
        assert written.is_set()
        assert not book.written.is_set()
        again = book.written
        await book.serve(a_bill(1))
        assert not again.is_set()
