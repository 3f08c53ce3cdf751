"""From a URL to a store that is ours alone."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import trio
from sqlalchemy import URL

from musivum.store.database import Database
from musivum.store.postgres import POLL_SECONDS, open_postgres
from musivum.store.sqlite import open_sqlite
from musivum.store.urls import locate
from musivum.store.writer import Store, in_thread
from tessella.core.errors import StoreLost
from tessella.core.exits import leaves


@asynccontextmanager
async def open_store(url: str, *, wait: Callable[[], None] | None = None) -> AsyncIterator[Store]:
    """The store of a database: `sqlite:///path`, or `postgresql://user@host/name`.

    Made where it is missing, brought up to date where it is old. A PostgreSQL database that
    another musivum leads is waited for, and `wait()` is called once when that begins.
    Closing: what is saved and noted is written, also when cancelled.
    Errors: BadConfig for a URL, a file or a database that cannot be used, and for an SQLite file
    that another musivum has open; StoreUnavailable where no server lets us in. A database that
    fails us later cancels the body, and StoreLost leaves.
    """
    limiter = trio.CapacityLimiter(1)
    database = await trio.to_thread.run_sync(_open, locate(url), limiter=limiter)
    call = partial(in_thread, database, limiter)
    try:
        while not await call(database.try_lock):
            if wait is not None:
                wait()
                wait = None
            await trio.sleep(POLL_SECONDS)
        await call(database.migrate)
        store = Store(database, limiter)
        with _bare_errors():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.write)
                try:
                    yield store
                finally:
                    store.stop()
    finally:
        # Where even that does not return, the end of the process closes it.
        with contextlib.suppress(StoreLost):
            await call(database.close)


def _open(place: Path | URL) -> Database:
    return open_sqlite(place) if isinstance(place, Path) else open_postgres(place)


@contextmanager
def _bare_errors() -> Iterator[None]:
    """The body's error leaves as it was raised, and StoreLost alone for all that it caused."""
    try:
        yield
    except BaseExceptionGroup as group:
        lost, others = group.split(StoreLost)
        if lost is not None and others is None:
            first = next(leaves(lost))
            raise first from first.__cause__
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from group.exceptions[0].__cause__
        raise
