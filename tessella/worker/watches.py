"""What pauses a node by itself, as its operator set it: hours of the week, others on its GPU."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import NoReturn

import trio

from tessella.core.pauses import Why
from tessella.core.schedule import Schedule, paused_at
from tessella.engine.device import Device, gpu_in_use
from tessella.worker.config import WorkerConfig
from tessella.worker.gpu_load import GpuQuestions, check_gpu, watch_gpu
from tessella.worker.pausing import Say, Watch

# A schedule is in minutes.
SCHEDULE_LOOK_SECONDS = 60.0

Now = Callable[[], datetime]


def watches_of(
    config: WorkerConfig, device: Device, computed: Callable[[], float], now: Now = datetime.now
) -> list[tuple[Why, Watch]]:
    """Who is asked whether the node should be paused.

    `computed` tells the seconds that we have computed since the start, `now` the local time.
    Raises BadConfig for `auto_pause` where there is no GPU whose load can be told.
    """
    watches: list[tuple[Why, Watch]] = []
    if config.pause_schedule:
        watches.append((Why.SCHEDULE, partial(watch_schedule, config.pause_schedule, now)))
    if config.auto_pause:
        check_gpu("auto_pause", device)
        ask = GpuQuestions(gpu_in_use()).ask
        watches.append((Why.GPU, partial(watch_gpu, config.auto_pause_percent, ask, computed)))
    return watches


async def watch_schedule(schedule: Schedule, now: Now, say: Say) -> NoReturn:
    """Say each minute whether the schedule has the node paused, until cancelled."""
    while True:
        say(paused_at(schedule, now()))
        await trio.sleep(SCHEDULE_LOOK_SECONDS)
