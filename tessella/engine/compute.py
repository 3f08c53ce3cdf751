"""One thread that computes, so that trio never waits on torch.

A job goes to the thread through a bell (a C queue that a thread can sleep on) and two lines, one
for decode steps and one for the rest, each in the order of tiers; the answer comes back through a
queue of its own, and a byte in a pipe wakes the loop for it, which takes half the time of trio's
own way in. No lock is held by either side while the other works, and nobody polls.

The thread is asked to stop through the job it runs: `Job.advance`, called between layers, raises
once the waiter is gone. A thread inside one long operation cannot be stopped.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import outcome
import trio

from tessella.core.errors import Busy, LocalError
from tessella.core.tiers import Line, Tier
from tessella.engine.out_of_memory import told

T = TypeVar("T")

# Jobs that wait for the thread. Sessions are admitted elsewhere and have one job each in here, so
# this is far above what honest use reaches, and bounds what a bug can pile up.
MAX_QUEUED_JOBS = 256
# Decode steps that may pass a waiting prefill chunk: a chunk costs as much as several steps, and
# without an end to it, many talking sessions would keep a fresh one from ever starting.
MAX_URGENT_IN_A_ROW = 8
# Seconds that closing waits for a job to reach its next layer: more than any layer takes, and
# short of what a supervisor gives a program to end.
CLOSE_SECONDS = 20.0


class _Stopped(Exception):
    """Raised inside work whose waiter is gone."""


class Job:
    """One piece of work, as the work itself sees it."""

    def __init__(self, thread: ComputeThread, work: Callable[[Job], Any], tier: Tier) -> None:
        self.tier = tier
        """Whose work it is."""
        self.queued_at = time.perf_counter()
        """When it was asked for, on this machine's `perf_counter`."""
        self.advanced = 0
        """How often this job has advanced."""
        self._thread = thread
        self._work = work
        self._task = trio.lowlevel.current_task()
        self._raise_cancel: Callable[[], Any] | None = None
        self._stop = False

    def advance(self) -> None:
        """Say that one more layer is done. Raises, to end the work, if nobody waits for it."""
        self.advanced += 1
        self._thread.counter += 1
        if self._stop:
            raise _Stopped


@dataclass(slots=True)
class _Finished:
    """A job that left the thread, and seconds that it waited and ran."""

    job: Job
    result: outcome.Outcome[Any]
    waited: float
    ran: float


@dataclass(frozen=True, slots=True)
class ComputeStatistics:
    """What the thread has done since it started."""

    jobs: int
    """Jobs that left the thread, however they ended."""
    queued: int
    """Jobs that wait at this moment."""
    waited: float
    """Seconds that finished jobs spent waiting, added up."""
    ran: float
    """Seconds that they spent in the thread, added up."""


class ComputeThread:
    """The thread's trio side. `open_compute` makes one; all methods are for the trio thread."""

    def __init__(self) -> None:
        self.counter = 0
        """Grows whenever a layer is done, and never falls: a busy thread that makes progress."""
        self._urgent: Line[Job] = Line()
        self._patient: Line[Job] = Line()
        self._bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._token = trio.lowlevel.current_trio_token()
        self._finished: deque[_Finished] = deque()
        self._wakeup, self._wake = os.pipe()
        self._waiting: set[Job] = set()
        self._scope = trio.CancelScope()
        self._closed: str | None = None
        self._died: LocalError | None = None
        self._jobs, self._waited, self._ran = 0, 0.0, 0.0
        self._passed = 0  # urgent jobs taken in a row while others waited; the thread's own

    @property
    def statistics(self) -> ComputeStatistics:
        """How busy the thread is and was."""
        queued = len(self._urgent) + len(self._patient)
        return ComputeStatistics(self._jobs, queued, self._waited, self._ran)

    async def run(
        self, work: Callable[[Job], T], *, urgent: bool = False, tier: Tier = Tier.LEECH
    ) -> T:
        """What `work` returns, or raises, in the compute thread.

        Urgent work goes before the rest, whatever its tier, and within each goes what is due first
        by `core.tiers`; MAX_URGENT_IN_A_ROW of it may pass the same waiting job. Cancelling drops
        work that still waits at once, and stops work that runs at its next `advance`; either way it
        has left the thread when this returns, and what it used may be freed. Work that ends before
        it notices returns its value.

        Raises Busy beyond MAX_QUEUED_JOBS, LocalError if the thread is gone, and OutOfMemory in
        place of whatever an allocator raised.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closed is not None:
            raise LocalError(self._closed)
        line = self._urgent if urgent else self._patient
        if len(self._urgent) + len(self._patient) >= MAX_QUEUED_JOBS:
            raise Busy(f"{MAX_QUEUED_JOBS} jobs already wait for the compute thread")
        job = Job(self, work, tier)
        self._waiting.add(job)
        line.put(job)
        self._bell.put(True)

        def abort(raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
            job._raise_cancel = raise_cancel
            job._stop = True
            if not line.remove(job):
                return trio.lowlevel.Abort.FAILED  # the thread has it: `_finish` will wake us
            self._waiting.discard(job)
            return trio.lowlevel.Abort.SUCCEEDED

        result: T = await trio.lowlevel.wait_task_rescheduled(abort)
        return result

    async def _listen(self) -> None:
        """Hand results over as they come, until the pipe is closed."""
        with suppress(trio.ClosedResourceError):
            while True:
                await trio.lowlevel.wait_readable(self._wakeup)
                os.read(self._wakeup, MAX_QUEUED_JOBS)
                self._hand_over()

    def _hand_over(self) -> None:
        while self._finished:
            self._finish(self._finished.popleft())

    def _hang_up(self) -> None:
        """The thread has ended: take its last results, and close the pipe."""
        self._hand_over()
        trio.lowlevel.notify_closing(self._wakeup)
        os.close(self._wakeup)
        os.close(self._wake)

    def _finish(self, finished: _Finished) -> None:
        job, result = finished.job, finished.result
        self._jobs += 1
        self._waited += finished.waited
        self._ran += finished.ran
        if job not in self._waiting:
            return
        self._waiting.discard(job)
        if isinstance(result, outcome.Error) and isinstance(result.error, _Stopped):
            result = self._why_stopped(job)
        trio.lowlevel.reschedule(job._task, result)

    def _why_stopped(self, job: Job) -> outcome.Outcome[Any]:
        if job._raise_cancel is not None:
            return outcome.capture(job._raise_cancel)
        return outcome.Error(LocalError(self._closed or "the work of a job stopped unasked"))

    def _close(self, reason: str) -> None:
        """Take no more work, drop what waits, and ask what runs to stop."""
        self._closed = self._closed or reason
        for job in list(self._waiting):
            job._stop = True
            if self._urgent.remove(job) or self._patient.remove(job):
                self._waiting.discard(job)
                trio.lowlevel.reschedule(job._task, outcome.Error(LocalError(self._closed)))
        self._bell.put(False)

    def _bury(self, reason: str, cause: BaseException | None) -> None:
        """The thread ended by itself, or will not end: nobody may wait for it any longer."""
        self._died = LocalError(reason)
        self._died.__cause__ = cause
        self._closed = reason
        for job in self._waiting:
            trio.lowlevel.reschedule(job._task, outcome.Error(LocalError(self._closed)))
        self._waiting.clear()
        self._scope.cancel()

    def _work(self) -> None:
        """The thread."""
        try:
            while self._bell.get():
                if (job := self._next()) is not None:
                    self._run(job)
                    # What it worked with is not to be kept for as long as the thread has no work.
                    del job
        except BaseException as cause:  # noqa: BLE001 - the last frame: handed over, not swallowed
            self._tell(self._bury, f"the compute thread died: {cause!r}", cause)

    def _next(self) -> Job | None:
        """The urgent job that is due, else another one; None if the one rung for was dropped."""
        tired = self._passed >= MAX_URGENT_IN_A_ROW
        lines = (self._patient, self._urgent) if tired else (self._urgent, self._patient)
        for line in lines:
            if (job := line.take()) is not None:
                passes = line is self._urgent and len(self._patient) > 0
                self._passed = self._passed + 1 if passes else 0
                return job
        return None

    def _run(self, job: Job) -> None:
        started = time.perf_counter()
        result: outcome.Outcome[Any]
        try:
            result = outcome.Error(_Stopped()) if job._stop else outcome.Value(job._work(job))
        except Exception as exc:  # noqa: BLE001 - it belongs to the waiter, whatever it is
            result = outcome.Error(told(exc))
        ran = time.perf_counter() - started
        self._finished.append(_Finished(job, result, started - job.queued_at, ran))
        os.write(self._wake, b"\0")

    def _tell(self, tell: Callable[..., None], *args: object) -> None:
        try:
            self._token.run_sync_soon(tell, *args)
        except trio.RunFinishedError:
            self._bell.put(False)  # the program ended without us: nobody is left to tell


@asynccontextmanager
async def open_compute() -> AsyncIterator[ComputeThread]:
    """A compute thread for as long as the context lasts.

    Closing: jobs that wait get LocalError, one that runs is stopped at its next `advance`, and the
    thread has ended when the context has. Errors: if the thread dies, the body is cancelled, its
    waiters get LocalError, and so does the context; LocalError too if the thread does not end
    within CLOSE_SECONDS.
    """
    compute = ComputeThread()
    # Daemonic, so that work stuck in a driver cannot keep a program alive that gave up on it.
    thread = threading.Thread(target=compute._work, name="tessella-compute", daemon=True)
    thread.start()
    trio.lowlevel.spawn_system_task(compute._listen, name="compute results")
    try:
        with compute._scope:
            yield compute
    finally:
        compute._close("the compute thread is closed")
        with trio.CancelScope(shield=True):
            # Waited for in real time: a test's virtual clock says nothing about a thread.
            await trio.to_thread.run_sync(thread.join, CLOSE_SECONDS)
        if thread.is_alive():
            # Its pipe stays open: another file could get the number that it will write to.
            compute._bury(f"the compute thread did not end within {CLOSE_SECONDS:g} s", None)
        else:
            compute._hang_up()
    if compute._died is not None:
        raise compute._died
