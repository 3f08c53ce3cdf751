from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tessella.core.errors import (
    BadFrame,
    PeerUnreachable,
    RemoteFailure,
    StoreLost,
    TessellaError,
)
from tessella.core.identity import Identity
from tessella.core.messages import Proof, decode_sealed
from tessella.core.proofs import SignedProof
from tessella.core.settlement import Became, Outcome
from tessella.worker.proofs.book import ProofBook, open_book
from tessella.worker.proofs.upload import GATHER_SECONDS, LONGEST_RETRY, MAX_PROOFS, Uploader
from tessella.worker.proofs.witness import Bill

MakeBill = Callable[..., Bill]
PAID = Outcome(Became.PAID, 1000)
WAITING = Outcome(Became.WAITING)


@dataclass
class Musivum:
    """Settles what it is brought as a test wants it."""

    outcome: Outcome = PAID
    error: TessellaError | None = None
    poison: int | None = None
    """A sequence that it chokes on, with all that is brought beside it."""
    asked: list[tuple[float, list[int]]] = field(default_factory=list)

    async def settle(self, proofs: Sequence[SignedProof]) -> list[Outcome]:
        sequences = [decode_sealed(each.payload, Proof).sequence for each in proofs]
        self.asked.append((trio.current_time(), sequences))
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        if self.poison in sequences:
            raise RemoteFailure("bad_frame", "choked", retry=False)
        return [self.outcome] * len(proofs)

    def times(self) -> list[float]:
        return [at for at, _ in self.asked]


@asynccontextmanager
async def uploading(path: Path, worker: Identity, musivum: Musivum) -> AsyncIterator[ProofBook]:
    async with open_book(path, worker) as book, trio.open_nursery() as nursery:
        uploader = Uploader(book, musivum.settle, lambda: 0.0)
        nursery.start_soon(uploader.run)
        yield book
        nursery.cancel_scope.cancel()


async def test_a_proof_is_brought_at_once_with_those_that_follow_in_a_moment(
    path: Path, worker: Identity, a_bill: MakeBill, inline: None, autojump_clock: MockClock
) -> None:
    musivum = Musivum()
    async with uploading(path, worker, musivum) as book:
        await trio.sleep(100.0)
        started = trio.current_time()
        for number in range(3):
            await book.serve(a_bill(number))
        await trio.sleep(1.0)
        ((at, sequences),) = musivum.asked
        assert at - started == pytest.approx(GATHER_SECONDS)
        assert sequences == sorted(sequences)
        assert len(sequences) == 3
        assert (book.totals.unsettled, book.totals.paid, book.totals.micro) == (0, 3, 3000)


async def test_what_was_left_is_brought_at_the_next_start_in_order_and_in_batches(
    path: Path, worker: Identity, a_bill: MakeBill, inline: None, autojump_clock: MockClock
) -> None:
    async with open_book(path, worker) as book:
        for number in range(MAX_PROOFS + 5):
            await book.serve(a_bill(number))
    musivum = Musivum()
    async with uploading(path, worker, musivum) as book:
        await trio.sleep(1.0)
        assert book.totals.paid == MAX_PROOFS + 5
    brought = [sequence for _, sequences in musivum.asked for sequence in sequences]
    assert [len(sequences) for _, sequences in musivum.asked] == [MAX_PROOFS, 5]
    assert brought == sorted(set(brought))


async def test_a_musivum_that_is_away_is_asked_ever_more_seldom_and_then_gets_all(
    path: Path, worker: Identity, a_bill: MakeBill, inline: None, autojump_clock: MockClock
) -> None:
    musivum = Musivum(error=PeerUnreachable("away"))
    async with uploading(path, worker, musivum) as book:
        await book.serve(a_bill(0))
        await trio.sleep(300.0)
        times = musivum.times()
        waits = [later - sooner for sooner, later in pairwise(times)]
        assert waits[:7] == pytest.approx([1, 2, 4, 8, 16, 32, 60])
        assert max(waits) == pytest.approx(LONGEST_RETRY)
        await book.serve(a_bill(1))
        musivum.error = None
        await trio.sleep(LONGEST_RETRY + 1.0)
        assert len(musivum.asked[-1][1]) == 2
        assert book.totals.unsettled == 0
        # After a success it is near again.
        await book.serve(a_bill(2))
        await trio.sleep(1.0)
        assert book.totals.paid == 3


async def test_a_proof_that_waits_is_asked_about_at_growing_intervals(
    path: Path, worker: Identity, a_bill: MakeBill, inline: None, autojump_clock: MockClock
) -> None:
    musivum = Musivum(outcome=WAITING)
    async with uploading(path, worker, musivum) as book:
        await book.serve(a_bill(0))
        await trio.sleep(4000.0)
        times = musivum.times()
        waits = [later - sooner for sooner, later in pairwise(times)]
        assert waits[:9] == pytest.approx([5, 10, 20, 40, 80, 160, 320, 600, 600])
        # Another one does not wait for it.
        musivum.outcome = PAID
        await book.serve(a_bill(1))
        await trio.sleep(1.0)
        assert book.totals.paid == 1
        await trio.sleep(601.0)
        assert book.totals.paid == 2


async def test_one_that_musivum_chokes_on_keeps_no_other_from_being_paid(
    path: Path, worker: Identity, a_bill: MakeBill, inline: None, autojump_clock: MockClock
) -> None:
    async with open_book(path, worker) as book:
        for number in range(9):
            await book.serve(a_bill(number))
        poison = (await book.due(9, 10**9))[4].sequence
    musivum = Musivum(poison=poison)
    async with uploading(path, worker, musivum) as book:
        await trio.sleep(300.0)
        assert (book.totals.paid, book.totals.unsettled) == (8, 1)
        musivum.poison = None
        await trio.sleep(700.0)
        assert book.totals.paid == 9


@pytest.mark.parametrize(
    "error", [RemoteFailure("too_many_requests", "slower", retry=True), BadFrame("gibberish")]
)
async def test_whatever_goes_wrong_it_is_tried_again(
    path: Path,
    worker: Identity,
    a_bill: MakeBill,
    inline: None,
    autojump_clock: MockClock,
    error: TessellaError,
) -> None:
    musivum = Musivum(error=error)
    async with uploading(path, worker, musivum) as book:
        await book.serve(a_bill(0))
        await trio.sleep(30.0)
        assert 2 < len(musivum.asked) < 10
        musivum.error = None
        await trio.sleep(100.0)
        assert book.totals.paid == 1


async def test_fewer_outcomes_than_proofs_settle_nothing(
    path: Path, worker: Identity, a_bill: MakeBill, inline: None, autojump_clock: MockClock
) -> None:
    async def short(proofs: Sequence[SignedProof]) -> list[Outcome]:
        return [PAID] * (len(proofs) - 1)

    async with open_book(path, worker) as book:
        await book.serve(a_bill(0))
        with trio.move_on_after(10.0):
            await Uploader(book, short, lambda: 0.0).run()
        assert book.totals.paid == 0


async def test_what_is_left_is_brought_before_the_node_leaves_if_that_is_quick(
    path: Path, worker: Identity, a_bill: MakeBill, inline: None, autojump_clock: MockClock
) -> None:
    musivum = Musivum()

    async def silent(_: Sequence[SignedProof]) -> list[Outcome]:
        await trio.sleep_forever()
        return []

    async with open_book(path, worker) as book:
        await book.serve(a_bill(0))
        started = trio.current_time()
        await Uploader(book, silent).flush()
        assert trio.current_time() - started == pytest.approx(1.0)
        assert book.totals.paid == 0
        musivum.error = PeerUnreachable("away")
        await Uploader(book, musivum.settle).flush()
        musivum.error = None
        await Uploader(book, musivum.settle).flush()
        assert book.totals.paid == 1


async def test_a_disk_that_failed_ends_it(
    path: Path, worker: Identity, inline: None, autojump_clock: MockClock
) -> None:
    async with open_book(path, worker) as book:
        book._lose(StoreLost("gone"))
        with pytest.raises(StoreLost):
            await Uploader(book, Musivum().settle).run()


async def test_the_jitter_keeps_nodes_apart(
    path: Path, worker: Identity, a_bill: MakeBill, inline: None, autojump_clock: MockClock
) -> None:
    musivum = Musivum(error=PeerUnreachable("away"))
    async with open_book(path, worker) as book:
        await book.serve(a_bill(0))
        with trio.move_on_after(1.09):
            await Uploader(book, musivum.settle, lambda: 1.0).run()
        assert len(musivum.asked) == 1
        with trio.move_on_after(1.2):
            await Uploader(book, musivum.settle, lambda: 1.0).run()
        assert len(musivum.asked) == 3
