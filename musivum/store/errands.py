"""Work of the caller's own in one transaction, and how it waits for the one thread that may.

An errand reads and writes as it likes; if it raises, nothing of it is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import trio
from sqlalchemy import Connection

from tessella.core.errors import LocalError, StoreLost

T = TypeVar("T")

# Each is a caller that waits. More than that come only where the disk has stopped.
MAX_ERRANDS = 4096


class Transacts(Protocol):
    """What runs errands: `musivum.store.Store`, or a store in memory."""

    async def transact(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction; returns what it does, when that is on the disk."""


class Errand(Generic[T]):
    """One caller's work, from when it waits until it is done."""

    def __init__(self, work: Callable[[Connection], T]) -> None:
        self._work = work
        self._done = trio.Event()
        self._found: list[T] = []
        self._error: BaseException | None = None

    def run(self, connection: Connection) -> None:
        """Do the work, in the database's thread. What it raises rolls the transaction back."""
        self._found = [self._work(connection)]

    def end(self, error: BaseException | None = None) -> None:
        """Wake the caller: it is committed, or this is why nothing is."""
        self._error = error
        self._done.set()

    async def wait(self) -> T:
        """What the work returned, once it is committed, or its error."""
        await self._done.wait()
        if isinstance(self._error, (StoreLost, LocalError)):
            # Its own for each caller: a store that is lost or closed tells it to all that wait.
            raise type(self._error)(*self._error.args) from self._error
        if self._error is not None:
            raise self._error
        (found,) = self._found
        return found
