"""A program that outlives the library below it, a few times, and ends loudly after that.

libp2p runs tasks of its own. When one of them fails, the whole host is gone, and `open_host`
raises HostDied instead of living on half dead. Who serves for days starts again, from the same
key, so that peers know it by the same name:

    async def once() -> None:
        async with open_host(identity, listen=listen) as host:
            await serve(host)

    await supervise(once)

Everything else that `once` raises is the program's own business and passes through.
"""

from __future__ import annotations

import gc
import logging
from collections import deque
from collections.abc import Awaitable, Callable

import trio

from tessella.core.errors import LocalError
from tessella.core.exits import leaves

logger = logging.getLogger(__name__)

# Seconds before each start again. After the last of them the machine's own supervisor is asked:
# something is wrong that starting again in one process does not mend.
DELAYS = (0.5, 2.0, 8.0, 30.0)
# Seconds without a death after which one is forgotten.
FORGIVEN_AFTER = 3600.0


class HostDied(LocalError):
    """The network library ended by itself: its host and everything on it is gone."""

    code = "host_died"


def delay_after(deaths: int) -> float | None:
    """Seconds to wait after so many deaths in FORGIVEN_AFTER; None to give up. At least 1."""
    return DELAYS[deaths - 1] if deaths <= len(DELAYS) else None


async def supervise(open_and_serve: Callable[[], Awaitable[None]]) -> None:
    """Run `open_and_serve` until it returns, again whenever the host below it died.

    It has to open the host itself, from the same identity each time, and everything that serves
    on it. Raises HostDied after len(DELAYS) starts too close together, and whatever else
    `open_and_serve` raises at once.
    """
    deaths: deque[float] = deque()
    while True:
        try:
            return await open_and_serve()
        except Exception as exc:
            died = _death_in(exc)
            if died is None:
                raise
        deaths.append(trio.current_time())
        while deaths[0] <= deaths[-1] - FORGIVEN_AFTER:
            deaths.popleft()
        delay = delay_after(len(deaths))
        if delay is None:
            raise HostDied(f"{died}, {len(deaths)} times: not started again") from died
        logger.error("%s; starting again in %g s, %d of %d", died, delay, len(deaths), len(DELAYS))
        # Its traceback holds everything that was served on the host, in cycles of frames.
        del died
        gc.collect()
        await trio.sleep(delay)


def _death_in(raised: BaseException) -> HostDied | None:
    """The death among what was raised: what else failed beside it failed because of it."""
    return next((leaf for leaf in leaves(raised) if isinstance(leaf, HostDied)), None)
