"""Making way for others on the GPU: what `nvidia-smi` says, without what we compute ourselves."""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NoReturn

import trio

from tessella.core.errors import BadConfig
from tessella.core.foreign_load import ForeignLoad, foreign_pct
from tessella.engine.device import Device
from tessella.worker.pausing import Say

logger = logging.getLogger(__name__)

PROGRAM = "nvidia-smi"
QUERY = ("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
# It takes half a second; on a driver that hangs it takes for ever.
ASK_SECONDS = 5.0
LOOK_SECONDS = 10.0
# One line of three digits, for each GPU of a machine that has sixteen.
MAX_ANSWER_CHARS = 256

Utilisation = Callable[[], Awaitable[float | None]]
"""Percent of the time in which a GPU was in use lately; None where it could not be told."""


def check_gpu(key: str, device: Device) -> None:
    """Raises BadConfig that names the key unless there is a GPU whose load can be told."""
    if device is not Device.CUDA:
        raise BadConfig(f"{key}: watches an NVIDIA GPU, and this node computes on {device.value}")
    if shutil.which(PROGRAM) is None:
        raise BadConfig(f"{key}: needs {PROGRAM}, which is not installed here")


class GpuQuestions:
    """Asks for the utilisation of one GPU, by its index or UUID, as the driver measured it."""

    def __init__(self, gpu: str) -> None:
        self._command = [PROGRAM, f"--id={gpu}", *QUERY]
        # A driver that hangs keeps the program from being killed: no second one waits behind it.
        self._turn = trio.CapacityLimiter(1)

    async def ask(self) -> float | None:
        """Percent; None where it could not be told within ASK_SECONDS."""
        with trio.move_on_after(ASK_SECONDS):
            # The stubs that libp2p brings along are older than this argument.
            ask = partial(
                trio.to_thread.run_sync,
                self._ask,
                limiter=self._turn,
                abandon_on_cancel=True,  # type: ignore[call-arg, unused-ignore]
            )
            used: float | None = await ask()
            return used
        logger.info("%s did not answer within %g s", PROGRAM, ASK_SECONDS)
        return None

    def _ask(self) -> float | None:
        try:
            ended = subprocess.run(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=ASK_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            logger.info("%s told nothing: %s", PROGRAM, exc)
            return None
        return read_utilisation(ended.stdout) if ended.returncode == 0 else None


def read_utilisation(answer: bytes) -> float | None:
    """The percent in an answer of one line; None for anything else, such as `[N/A]`."""
    text = answer[:MAX_ANSWER_CHARS].decode(errors="replace").strip()
    if not (text.isascii() and text.isdecimal()) or int(text) > 100:
        return None
    return float(text)


async def watch_gpu(
    limit_pct: float, ask: Utilisation, computed: Callable[[], float], say: Say
) -> NoReturn:
    """Have the node paused while others use more of the GPU than `limit_pct` percent of the time.

    `computed` tells the seconds that we have computed since the start.
    """
    load, at, spent = ForeignLoad(limit_pct), trio.current_time(), computed()
    while True:
        await trio.sleep(LOOK_SECONDS)
        used = await ask()
        now, total = trio.current_time(), computed()
        ours = (total - spent) / (now - at)
        load = load.after(None if used is None else foreign_pct(used, ours), now)
        at, spent = now, total
        say(load.is_busy)
