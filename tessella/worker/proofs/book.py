"""The node's own book: what it served and is owed, on the disk before an answer leaves.

One thread writes. What is served and the proof of it are one transaction, so that neither a crash
nor a power cut leaves one without the other; what a proof became is another. A proof is sealed
inside of its transaction: it has the number that follows, and the hash of the one before.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio

from tessella.core.errors import StoreLost, StoreUnavailable
from tessella.core.identity import Identity
from tessella.core.messages import Proof
from tessella.core.proofs import SignedProof, seal_proof
from tessella.core.settlement import Became, Outcome
from tessella.worker.proofs.schema import naming, open_to_write, transaction
from tessella.worker.proofs.totals import Totals, read_totals
from tessella.worker.proofs.witness import Bill

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Settled proofs that stay for their owner to see, 300 bytes each. The totals count all.
KEEP_SETTLED = 10_000
# Proofs that wait for a musivum, 20 KB each at most. A ticket lasts an hour, so there are more only
# of a node that was paid by nobody for long.
MAX_UNSETTLED = 100_000
# Between two tries to write while the disk is full.
PROBE_SECONDS = 2.0
# A disk that has not answered for so long has failed: musivum's own store waits no longer.
PATIENCE_SECONDS = 30.0
# For how long the bill of a session that was given up waits for the same one to begin anew, over
# other nodes or without the KV of an earlier request: a ticket is paid once.
HOLD_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Owed:
    """A proof that is not settled."""

    sequence: int
    asks: int
    """How often musivum answered that it waits."""
    request_id: bytes
    is_held: bool
    """Whether another bill for its ticket may take its place yet, if that is made before it is
    sent."""
    proof: SignedProof


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one."""

    sequence: int
    outcome: Outcome
    due: float
    """When to ask again, on trio's clock, while it waits."""


class ProofBook:
    """`open_book` makes it; its methods are for one trio run, which also runs `run`.

    What raises StoreUnavailable wrote nothing, and may work later. What raises StoreLost may have
    written; from then on all does, and so does `run`, to end the program.
    """

    def __init__(
        self, path: Path, db: sqlite3.Connection, identity: Identity, clock: Callable[[], float]
    ) -> None:
        self._path, self._db, self._identity, self._clock = path, db, identity, clock
        self._limiter = trio.CapacityLimiter(1)
        self._failing: StoreUnavailable | None = None
        self._lost: StoreLost | None = None
        self._trouble = trio.Event()
        self.totals: Totals = read_totals(db)
        """As of the last write."""
        self.written = trio.Event()
        """Set when there is another proof; there is a fresh one from then on."""
        self.is_live: Callable[[bytes], bool] = lambda _: False
        """Whether a session of that request runs, and will be billed in place of what is held."""

    def check_writable(self) -> None:
        """Raises StoreUnavailable while no proof can be written, or too many wait to be paid."""
        if self._lost is not None:
            raise StoreLost(str(self._lost))
        if self._failing is not None:
            raise StoreUnavailable(str(self._failing))
        if self.totals.unsettled >= MAX_UNSETTLED:
            raise StoreUnavailable(
                f"{MAX_UNSETTLED} proofs already wait for musivum to settle them"
            )

    async def serve(self, bill: Bill, *, hold: float = 0.0) -> None:
        """Count what was served, and have the proof of it on the disk when this returns.

        A ticket has one proof here, and nothing is done where it is there already. With `hold` it
        is not sent for so many seconds, and until it is, another bill for the ticket that is for no
        less replaces it.
        """
        due = trio.current_time() + hold if hold else 0.0
        if await self._write(partial(self._serve, bill, due)):
            written, self.written = self.written, trio.Event()
            written.set()

    def _serve(self, bill: Bill, due: float) -> bool:
        request_id = bill.ticketing.request_id
        served = bill.positions * len(bill.ticketing.layers)
        if not self._make_way(request_id, served):
            return False
        (sequence, previous) = self._db.execute(
            "SELECT next_sequence, previous FROM book"
        ).fetchone()
        made_at = self._clock()
        signed = seal_proof(self._proof(bill, sequence, previous, made_at), self._identity)
        self._db.execute(
            "INSERT INTO proofs (sequence, request_id, payload, signature, layer_positions, "
            "made_at, state, due) VALUES (?, ?, ?, ?, ?, ?, 'new', ?)",
            (sequence, request_id, signed.payload, signed.signature, served, made_at, due),
        )
        self._db.execute(
            "UPDATE book SET next_sequence = ?, previous = ?, sessions = sessions + 1, "
            "layer_positions = layer_positions + ?, unsettled = unsettled + 1",
            (sequence + 1, signed.digest, served),
        )
        return True

    def _make_way(self, request_id: bytes, more: int) -> bool:
        """Whether a ticket may have a proof of so much: it has none, or one of no more that was
        held back, and that nobody was brought."""
        there = self._db.execute(
            "SELECT sequence, layer_positions, state = 'new' AND asks = 0 AND due > 0 "
            "FROM proofs WHERE request_id = ?",
            (request_id,),
        ).fetchone()
        if there is None:
            return True
        sequence, served, is_held = there
        makes_way = is_held and served <= more
        if makes_way:
            self._db.execute("DELETE FROM proofs WHERE sequence = ?", (sequence,))
            self._db.execute(
                "UPDATE book SET sessions = sessions - 1, unsettled = unsettled - 1, "
                "layer_positions = layer_positions - ?",
                (served,),
            )
        return bool(makes_way)

    def _proof(self, bill: Bill, sequence: int, previous: bytes, made_at: float) -> Proof:
        return Proof(
            ticket=bill.ticketing.ticket,
            ticket_signature=bill.ticketing.signature,
            worker=self._identity.peer_id,
            sequence=sequence,
            previous=previous,
            layers=bill.ticketing.layers,
            start=bill.start,
            epoch=bill.came.epoch,
            inputs=bill.inputs,
            sender=bill.came.sender,
            voucher=bill.came.voucher,
            outputs=bill.outputs,
            sketch=bill.sketch,
            finished_at=made_at,
        )

    async def due(self, most: int, most_bytes: int) -> list[Owed]:
        """The first proofs that musivum is to be asked about, at least one if there is any.

        One that was held for long enough is held on while its session goes on, and else is from
        here on what stands.
        """
        now = trio.current_time()
        found = await self._in_thread(partial(self._due, now, most))
        if held := [each for each in found if each.is_held]:
            later = {each.sequence for each in held if self.is_live(each.request_id)}
            stand = await self._write(partial(self._end_hold, held, later, now + HOLD_SECONDS))
            found = [each for each in found if not each.is_held or each.sequence in stand]
        size, taken = 0, 0
        for owed in found:
            size += len(owed.proof.payload)
            if taken and size > most_bytes:
                break
            taken += 1
        return found[:taken]

    def _due(self, now: float, most: int) -> list[Owed]:
        rows = self._db.execute(
            "SELECT sequence, asks, request_id, state = 'new' AND asks = 0 AND due > 0, "
            "payload, signature FROM proofs "
            "WHERE settled_at IS NULL AND due <= ? ORDER BY sequence LIMIT ?",
            (now, most),
        )
        return [
            Owed(sequence, asks, request_id, bool(is_held), SignedProof(*signed))
            for sequence, asks, request_id, is_held, *signed in rows
        ]

    def _end_hold(self, held: Sequence[Owed], later: set[int], due: float) -> set[int]:
        """Hold some until `due`; which of the others are there still, and stand from here on."""
        stand = set()
        for each in held:
            at = due if each.sequence in later else 0.0
            changed = self._db.execute(
                "UPDATE proofs SET due = ? WHERE sequence = ?", (at, each.sequence)
            ).rowcount
            if changed and each.sequence not in later:
                stand.add(each.sequence)
        return stand

    async def next_due(self) -> float:
        """When the next of them is due, on trio's clock; `inf` where there is none."""
        return await self._in_thread(self._next_due)

    def _next_due(self) -> float:
        (due,) = self._db.execute("SELECT MIN(due) FROM proofs WHERE settled_at IS NULL").fetchone()
        return float("inf") if due is None else float(due)

    async def record(self, answers: Sequence[Answer]) -> None:
        """Write down what became of proofs. Of one that is settled already nothing is changed."""
        await self._write(partial(self._record, answers))

    def _record(self, answers: Sequence[Answer]) -> None:
        now = self._clock()
        for answer in answers:
            outcome = answer.outcome
            match outcome.became:
                case Became.WAITING:
                    self._put_off(answer.sequence, answer.due, "waiting")
                case Became.PAID | Became.ALREADY_PAID:
                    self._settle(answer.sequence, now, "paid", outcome)
                case Became.REFUSED:
                    self._settle(answer.sequence, now, "refused", outcome)
        self._prune()

    async def put_off(self, sequence: int, due: float) -> None:
        """Do not ask about one before that, on trio's clock."""
        await self._write(partial(self._put_off, sequence, due))

    def _put_off(self, sequence: int, due: float, state: str | None = None) -> None:
        self._db.execute(
            "UPDATE proofs SET state = COALESCE(?, state), due = ?, asks = asks + 1 "
            "WHERE sequence = ? AND settled_at IS NULL",
            (state, due, sequence),
        )

    def _settle(self, sequence: int, now: float, state: str, outcome: Outcome) -> None:
        micro = outcome.micro if state == "paid" else 0
        changed = self._db.execute(
            "UPDATE proofs SET state = ?, settled_at = ?, micro = ?, code = ?, text = ?, "
            "payload = x'', signature = x'' WHERE sequence = ? AND settled_at IS NULL",
            (state, now, micro, outcome.code, outcome.text, sequence),
        ).rowcount
        if changed:
            self._db.execute(
                "UPDATE book SET unsettled = unsettled - 1, paid = paid + ?, "
                "refused = refused + ?, micro = micro + ?",
                (int(state == "paid"), int(state == "refused"), micro),
            )

    def _prune(self) -> None:
        self._db.execute(
            "DELETE FROM proofs WHERE sequence IN (SELECT sequence FROM proofs "
            "WHERE settled_at IS NOT NULL ORDER BY settled_at DESC, sequence DESC "
            f"LIMIT -1 OFFSET {KEEP_SETTLED})"
        )

    async def run(self, checkpoint_seconds: float) -> None:
        """Fold the log into the file so often, and try a full disk again, until cancelled.

        Raises StoreLost as soon as anything here did.
        """
        checkpoint_at = trio.current_time() + checkpoint_seconds
        while True:
            wake_at = checkpoint_at
            if self._failing is not None:
                wake_at = min(wake_at, trio.current_time() + PROBE_SECONDS)
            with trio.move_on_at(wake_at):
                await self._trouble.wait()
            self._trouble = trio.Event()
            if self._lost is not None:
                raise StoreLost(str(self._lost))
            try:
                if trio.current_time() >= checkpoint_at:
                    checkpoint_at = trio.current_time() + checkpoint_seconds
                    await self._in_thread(self._checkpoint)
                elif self._failing is not None and trio.current_time() >= wake_at:
                    await self._write(self._probe)
            except StoreUnavailable:
                continue

    def _checkpoint(self) -> None:
        # PASSIVE waits for nobody: what a reader holds back is folded the next time.
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _probe(self) -> None:
        self._db.execute("UPDATE book SET probes = probes + 1")

    async def _write(self, change: Callable[[], T]) -> T:
        """Make a change in a transaction of its own; what it returned."""
        try:
            result, self.totals = await self._in_thread(partial(self._transact, change))
        except StoreUnavailable as exc:
            if self._failing is None:
                logger.error("no proof can be written: %s", exc)
            self._failing = exc
            self._trouble.set()
            raise
        if self._failing is not None:
            logger.warning("proofs can be written again")
        self._failing = None
        return result

    def _transact(self, change: Callable[[], T]) -> tuple[T, Totals]:
        with transaction(self._db):
            result = change()
            totals = read_totals(self._db)
        return result, totals

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Do it in the one thread that may, not to be cancelled; StoreLost where it never ends."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + PATIENCE_SECONDS):
            try:
                return await in_thread(partial(self._named, work), self._limiter)
            except StoreLost as exc:
                self._lose(exc)
                raise
        self._db.interrupt()
        self._lose(StoreLost(f"{self._path}: no answer within {PATIENCE_SECONDS:g} s"))
        raise StoreLost(str(self._lost))

    def _named(self, work: Callable[[], T]) -> T:
        if self._lost is not None:
            raise StoreLost(str(self._lost))
        with naming(self._path):
            return work()

    def _lose(self, error: StoreLost) -> None:
        self._lost = self._lost or error
        self._trouble.set()


async def in_thread(work: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
    """What `work` returns, in a thread that is left behind where the caller is cancelled."""
    return await trio.to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=True)  # type: ignore[call-arg, unused-ignore]


@asynccontextmanager
async def open_book(
    path: Path, identity: Identity, clock: Callable[[], float] = time.time
) -> AsyncIterator[ProofBook]:
    """The book of a node, as long as the context lasts; raises as `schema.open_to_write`.

    `clock` gives seconds since 1970.
    """
    db, lock = await trio.to_thread.run_sync(open_to_write, path, identity.peer_id, clock())
    try:
        with closing(db):
            yield ProofBook(path, db, identity, clock)
    finally:
        os.close(lock)
