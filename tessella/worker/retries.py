"""Trying again: for so many seconds, or for as long as the node lives."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from tessella.core.errors import TessellaError

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_RETRY = 0.5
LONGEST_RETRY = 15.0


async def try_again(
    attempt: Callable[[], Awaitable[T]], seconds: float, is_away: Callable[[TessellaError], bool]
) -> T:
    """What `attempt` returns. While it fails with what `is_away` says, it is tried again.

    Raises the last error after so many seconds, and every other error at once.
    """
    wait = FIRST_RETRY
    give_up = trio.current_time() + seconds
    while True:
        try:
            return await attempt()
        except TessellaError as exc:
            left = give_up - trio.current_time()
            if left <= 0 or not is_away(exc):
                raise
            logger.info("trying again: %s: %s", exc.code, exc)
        await trio.sleep(min(wait, left))
        wait = min(wait * 2, LONGEST_RETRY)


async def keep_going(
    task: Callable[[], Awaitable[None]], failed: Callable[[Exception], None]
) -> None:
    """Run a task until cancelled, again whenever an error ends it; `failed` is told of each.

    For tasks without which a node is lost to its mesh, whatever defect they have.
    """
    wait = FIRST_RETRY
    while True:
        started = trio.current_time()
        try:
            await task()
        except Exception as exc:
            logger.exception("a task that must not end is started again")
            failed(exc)
        if trio.current_time() - started > LONGEST_RETRY:
            wait = FIRST_RETRY
        await trio.sleep(wait)
        wait = min(wait * 2, LONGEST_RETRY)
