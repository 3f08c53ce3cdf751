"""The store: one task writes, in one thread, what everybody else wants written.

Callers that wait at the same time share a transaction, so a hundred of them cost the disk little
more than one. While a transaction is under way the next batch gathers.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import trio
from sqlalchemy import Connection

from musivum.store.changes import Change
from musivum.store.database import Database
from musivum.store.errands import MAX_ERRANDS, Errand
from musivum.store.pending import Batch, Pending
from musivum.store.records import Saved
from tessella.core.errors import LocalError, StoreLost, StoreUnavailable, TessellaError

logger = logging.getLogger(__name__)

T = TypeVar("T")

# How old a note may be when it is written, in seconds: what a crash may forget of it.
FLUSH_SECONDS = 1.0


class Store:
    """What outlives a restart. `open_store` makes it; its methods are for one trio run."""

    def __init__(self, database: Database, limiter: trio.CapacityLimiter) -> None:
        self._database = database
        self._limiter = limiter
        self._pending = Pending()
        self._errands: deque[Errand[Any]] = deque()
        self._wake = trio.Event()
        self._flush_at = math.inf
        self._is_closing = False
        self._is_failing = False
        self._ended: TessellaError | None = None

    async def load(self) -> Saved:
        """All that is kept, what is noted and not yet written excepted.

        Raises StoreUnavailable, and StoreLost for a row that cannot be read as for all else.
        """
        self._check_open()
        return await in_thread(self._database, self._limiter, self._database.read)

    async def save(self, *changes: Change) -> None:
        """Write changes, all or none; returns when they are on the disk.

        Cancelling: the caller leaves, and the changes may be written all the same.
        Errors: StoreUnavailable, nothing was written, and a later try may work; StoreLost, they
        may or may not be written, and the program ends.
        """
        self._check_open()
        waiter = self._pending.save(changes)
        self._wake.set()
        await waiter.done.wait()
        if waiter.error is not None:
            # Its own for each caller: they are raised at once, in several tasks.
            raise type(waiter.error)(*waiter.error.args) from waiter.error

    def note(self, *changes: Change) -> None:
        """Write changes within FLUSH_SECONDS, or as soon as there is room; never waits.

        A later note or save of the same record takes its place. Raises StoreUnavailable, and
        takes none, where too many wait; StoreLost.
        """
        self._check_open()
        self._pending.note(changes)
        if self._flush_at == math.inf:
            self._flush_at = trio.current_time() + FLUSH_SECONDS
            self._wake.set()

    async def transact(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction of its own; returns what it does, when that is on the disk.

        It runs in the database's thread, after whoever came before, and is all that is done there
        until it returns: it must be short. What it raises undoes it and is raised here.
        Cancelling: the caller leaves, and the work may be done all the same.
        Errors: as of `save`; StoreUnavailable also where too many wait.
        """
        self._check_open()
        if len(self._errands) >= MAX_ERRANDS:
            raise StoreUnavailable(f"{MAX_ERRANDS} transactions wait")
        errand = Errand(work)
        self._errands.append(errand)
        self._wake.set()
        return await errand.wait()

    def stop(self) -> None:
        """Let the writer write what waits and return."""
        self._is_closing = True
        self._wake.set()

    async def write(self) -> None:
        """Be the writer, until stopped; not to be cancelled before. Raises StoreLost."""
        ended: TessellaError = LocalError("the store is closed")
        try:
            with trio.CancelScope(shield=True):
                await self._write_until_stopped()
        except StoreLost as exc:
            ended = exc
            raise
        finally:
            self._ended = ended
            for waiter in self._pending.take().waiters:
                waiter.end(ended)
            for errand in self._errands:
                errand.end(ended)
            self._errands.clear()

    async def _write_until_stopped(self) -> None:
        check_at = trio.current_time() + self._database.check_seconds
        while not self._is_closing:
            with trio.move_on_at(min(self._flush_at, check_at)):
                await self._wake.wait()
            self._wake = trio.Event()
            now = trio.current_time()
            if self._pending.has_saves or now >= self._flush_at:
                await self._write_batch(self._take())
            elif not self._errands and now >= check_at:
                await self._run(self._database.check)
            elif not self._errands:
                continue
            await self._run_errands()
            check_at = trio.current_time() + self._database.check_seconds
        await self._run_errands()
        if self._pending.has_saves or self._pending.notes:
            await self._write_batch(self._take())
        if self._pending.notes:
            logger.error("%s: %d notes are lost", self._database.name, self._pending.notes)

    def _take(self) -> Batch:
        self._flush_at = math.inf
        return self._pending.take()

    async def _write_batch(self, batch: Batch) -> None:
        error: TessellaError | None = None
        try:
            await self._run(partial(self._database.apply, batch.changes))
        except StoreUnavailable as exc:
            error = exc
            self._pending.put_back()
            if self._pending.notes:
                self._flush_at = trio.current_time() + FLUSH_SECONDS
        except StoreLost as exc:
            error = exc
            raise
        except BaseException:
            error = StoreLost(f"{self._database.name}: the writer failed")
            raise
        else:
            self._pending.settle()
        finally:
            for waiter in batch.waiters:
                waiter.end(error)
        self._tell(error)

    async def _run_errands(self) -> None:
        """All that wait, in order; those that come meanwhile are after the next batch."""
        for _ in range(len(self._errands)):
            errand = self._errands.popleft()
            error: Exception | None = StoreLost(f"{self._database.name}: the writer failed")
            try:
                await self._run(partial(self._database.transact, errand.run))
                error = None
            except StoreLost as exc:
                error = exc
                raise
            except Exception as exc:  # noqa: BLE001 - the caller's own, who is told
                error = exc
            finally:
                errand.end(error)
            self._tell(error if isinstance(error, StoreUnavailable) else None)

    def _tell(self, error: TessellaError | None) -> None:
        """Say it once when nothing can be written, and once when it can be again."""
        if error is not None and not self._is_failing:
            logger.error("nothing can be written: %s", error)
        elif error is None and self._is_failing:
            logger.warning("%s: can be written again", self._database.name)
        self._is_failing = error is not None

    async def _run(self, work: Callable[[], T]) -> T:
        return await in_thread(self._database, self._limiter, work)

    def _check_open(self) -> None:
        if self._ended is not None:
            raise type(self._ended)(*self._ended.args) from self._ended


async def in_thread(database: Database, limiter: trio.CapacityLimiter, work: Callable[[], T]) -> T:
    """Call a method of the database in the one thread that may; not to be cancelled.

    A call that lasts longer than the database's patience is interrupted, and is StoreLost.
    """
    run = partial(trio.to_thread.run_sync, limiter=limiter, abandon_on_cancel=True)  # type: ignore[call-arg, unused-ignore]
    deadline = trio.current_time() + database.patience
    with trio.CancelScope(shield=True, deadline=deadline):
        return await run(work)
    database.lost = f"{database.name}: no answer within {database.patience:.0f} s"
    database.interrupt()
    raise StoreLost(database.lost)
