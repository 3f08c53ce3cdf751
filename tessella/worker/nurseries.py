"""Tasks that belong together and fail as one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from tessella.core.errors import TessellaError
from tessella.core.exits import leaves


@asynccontextmanager
async def open_conversation() -> AsyncIterator[trio.Nursery]:
    """A nursery for the tasks of one session: the first of our errors leaves it bare.

    When one end of a session fails, its other tasks often fail with it: the first TessellaError
    is the one to answer with. A cancellation from outside wins over it. Any other error is a bug
    of ours and leaves as it is, in its group.
    """
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        ours, others = group.split(TessellaError)
        if others is not None:
            cancelled, bugs = others.split(trio.Cancelled)
            raise (group if bugs is not None or cancelled is None else cancelled) from None
        if ours is None:
            raise
        first = next(leaves(ours))
        raise first from first.__cause__
