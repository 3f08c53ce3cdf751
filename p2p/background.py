"""A nursery for the tasks behind a context manager, whose errors come out bare."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def background_tasks() -> AsyncIterator[trio.Nursery]:
    """Tasks that live as long as the body and are cancelled when it ends.

    An error of the body is raised as it is, not in a group, so that a caller's `except` works as
    if there were no tasks. An error of a single task ends the body and is raised as it is too.
    """
    failed: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except Exception as exc:  # noqa: BLE001 - kept, and raised below
                failed = exc
            nursery.cancel_scope.cancel()
    except ExceptionGroup as group:
        if failed is None and len(group.exceptions) == 1:
            raise group.exceptions[0] from group.exceptions[0].__cause__
        raise
    if failed is not None:
        raise failed
