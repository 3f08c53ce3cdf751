from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial

import pytest
import trio

from tessella.core.errors import Busy, LocalError
from tessella.core.tiers import HEAD_START_SECONDS, Tier
from tessella.engine import compute as compute_module
from tessella.engine.compute import (
    MAX_QUEUED_JOBS,
    MAX_URGENT_IN_A_ROW,
    ComputeThread,
    Job,
    open_compute,
)

# Seconds after which a thread of a test gives up, so that a failure is a failure and not a hang.
PATIENCE = 10.0


class Gate:
    """Work that holds the thread until it is let go, then advances, then returns."""

    def __init__(self) -> None:
        self.entered = trio.Event()
        self.left = False
        self._token = trio.lowlevel.current_trio_token()
        self._go = threading.Event()

    def __call__(self, job: Job) -> str:
        self._token.run_sync_soon(self.entered.set)
        try:
            assert self._go.wait(PATIENCE)
            job.advance()
            return "done"
        finally:
            self.left = True

    def open(self) -> None:
        self._go.set()


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE):
        while not condition():
            await trio.lowlevel.checkpoint()


async def test_work_runs_in_one_other_thread_and_its_value_comes_back() -> None:
    async with open_compute() as compute:
        threads = {await compute.run(lambda _: threading.get_ident()) for _ in range(3)}
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


class Weights:
    """Something that work uses."""


def use(_: Weights, __: Job) -> None:
    """Work that is done."""


async def test_what_was_worked_with_last_is_not_kept() -> None:
    used = Weights()
    gone = weakref.ref(used)
    async with open_compute() as compute:
        await compute.run(partial(use, used))
        del used
        await until(lambda: gone() is None)


async def test_what_work_raises_reaches_its_waiter_and_the_thread_goes_on() -> None:
    def fail(_: Job) -> None:
        raise ZeroDivisionError("of mine")

    async with open_compute() as compute:
        with pytest.raises(ZeroDivisionError, match="of mine"):
            await compute.run(fail)
        assert await compute.run(lambda _: 5) == 5


async def test_urgent_work_goes_first_and_each_line_keeps_its_order() -> None:
    order: list[str] = []
    async with open_compute() as compute, trio.open_nursery() as nursery:
        gate = Gate()
        nursery.start_soon(compute.run, gate)
        await gate.entered.wait()

        async def ask(name: str, urgent: bool) -> None:
            await compute.run(lambda _: order.append(name), urgent=urgent)

        for at, (name, urgent) in enumerate(
            [("p1", False), ("p2", False), ("d1", True), ("d2", True)], start=1
        ):
            nursery.start_soon(ask, name, urgent)
            await until(lambda at=at: compute.statistics.queued == at)  # type: ignore[misc]
        gate.open()
    assert order == ["d1", "d2", "p1", "p2"]


async def test_urgent_work_passes_a_waiting_job_only_so_often() -> None:
    order: list[str] = []
    async with open_compute() as compute, trio.open_nursery() as nursery:
        gate = Gate()
        nursery.start_soon(compute.run, gate)
        await gate.entered.wait()

        async def ask(name: str, urgent: bool) -> None:
            await compute.run(lambda _: order.append(name), urgent=urgent)

        jobs = [("patient", False)] + [("urgent", True)] * (MAX_URGENT_IN_A_ROW + 3)
        for at, (name, urgent) in enumerate(jobs, start=1):
            nursery.start_soon(ask, name, urgent)
            await until(lambda at=at: compute.statistics.queued == at)  # type: ignore[misc]
        gate.open()
    assert order.index("patient") == MAX_URGENT_IN_A_ROW


class Clock:
    """Stands where it is put."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


async def order_of(*jobs: tuple[str, bool, Tier, float], drop: str = "") -> list[str]:
    """The names of jobs as a thread takes them that was busy while they came.

    `jobs`: (name, urgent, tier, seconds that it has waited), each tier's longest wait first.
    """
    order: list[str] = []
    async with open_compute() as compute, trio.open_nursery() as nursery:
        gate, dropped = Gate(), trio.CancelScope()
        nursery.start_soon(compute.run, gate)
        await gate.entered.wait()

        async def ask(name: str, urgent: bool, tier: Tier) -> None:
            with dropped if name == drop else contextlib.nullcontext():
                await compute.run(lambda _: order.append(name), urgent=urgent, tier=tier)

        clock = Clock()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compute_module, "time", clock)
            for at, (name, urgent, tier, waited) in enumerate(jobs, start=1):
                clock.now = -waited
                nursery.start_soon(ask, name, urgent, tier)
                await until(lambda at=at: compute.statistics.queued == at)  # type: ignore[misc]
        dropped.cancel()
        await until(lambda: compute.statistics.queued == len(jobs) - bool(drop))
        gate.open()
    return order


async def test_in_each_line_the_better_tier_goes_first_and_equals_as_they_came() -> None:
    came = [Tier.LEECH, Tier.VIP, Tier.STANDARD, Tier.LEECH, Tier.VIP]
    patient = [(f"{tier} {at}", False, tier, 0.0) for at, tier in enumerate(came)]
    urgent = [(f"step {tier}", True, tier, 0.0) for tier in came[:3]]
    assert await order_of(*patient, *urgent) == [
        *("step vip", "step standard", "step leech"),
        *("vip 1", "vip 4", "standard 2", "leech 0", "leech 3"),
    ]


@pytest.mark.parametrize("urgent", [True, False])
async def test_who_waited_longer_than_a_head_start_goes_before_a_fresh_better_one(
    urgent: bool,
) -> None:
    order = await order_of(
        ("leech", urgent, Tier.LEECH, 2 * HEAD_START_SECONDS + 1),
        ("standard", urgent, Tier.STANDARD, HEAD_START_SECONDS - 1),
        ("vip", urgent, Tier.VIP, 0.0),
    )
    assert order == ["leech", "vip", "standard"]


@pytest.mark.parametrize("drop", ["vip", "standard", "leech"])
async def test_a_job_dropped_from_any_tier_leaves_the_others_in_order(drop: str) -> None:
    jobs = [(str(tier), False, tier, 0.0) for tier in reversed(Tier)]
    left = [str(tier) for tier in Tier if tier != drop]
    assert await order_of(*jobs, drop=drop) == left


async def test_a_full_line_is_full_for_every_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_module, "MAX_QUEUED_JOBS", 1)
    async with open_compute() as compute, trio.open_nursery() as nursery:
        gate = Gate()
        nursery.start_soon(compute.run, gate)
        await gate.entered.wait()
        nursery.start_soon(compute.run, lambda _: 1)
        await until(lambda: compute.statistics.queued == 1)
        with pytest.raises(Busy, match="1 jobs already wait"):
            await compute.run(lambda _: 1, tier=Tier.VIP)
        gate.open()


async def test_trio_goes_on_while_the_thread_works() -> None:
    async with open_compute() as compute, trio.open_nursery() as nursery:
        gate = Gate()
        nursery.start_soon(compute.run, gate)
        await gate.entered.wait()
        for _ in range(100):
            await trio.lowlevel.checkpoint()
        assert not gate.left
        gate.open()


async def test_work_that_waits_is_dropped_at_once_when_cancelled() -> None:
    ran: list[int] = []
    async with open_compute() as compute, trio.open_nursery() as nursery:
        gate = Gate()
        nursery.start_soon(compute.run, gate)
        await gate.entered.wait()
        with trio.move_on_after(0) as scope:
            await compute.run(lambda _: ran.append(1))
        assert scope.cancelled_caught
        assert not gate.left
        assert compute.statistics.queued == 0
        gate.open()
    assert ran == []


async def test_cancelled_work_stops_at_its_next_advance_and_has_left_by_then() -> None:
    async with open_compute() as compute:
        gate = Gate()
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def cancel_then_let_go() -> None:
                    await gate.entered.wait()
                    scope.cancel()
                    with trio.CancelScope(shield=True):
                        for _ in range(20):
                            await trio.lowlevel.checkpoint()
                        assert not gate.left
                        gate.open()

                try:
                    pytest.fail(f"returned {await compute.run(gate)}")
                finally:
                    assert gate.left
        assert scope.cancelled_caught
        assert await compute.run(lambda _: 1) == 1


async def test_work_that_ends_before_it_notices_returns_its_value() -> None:
    async with open_compute() as compute:
        with trio.CancelScope() as scope:
            token = trio.lowlevel.current_trio_token()
            cancelled = threading.Event()

            def cancel() -> None:
                scope.cancel()
                cancelled.set()

            def work(_: Job) -> int:
                token.run_sync_soon(cancel)
                assert cancelled.wait(PATIENCE)
                return 7

            assert await compute.run(work) == 7


async def test_the_counter_grows_with_each_advance_and_each_job_has_its_own() -> None:
    def layers(count: int) -> Callable[[Job], int]:
        def work(job: Job) -> int:
            for _ in range(count):
                job.advance()
            return job.advanced

        return work

    async with open_compute() as compute:
        assert await compute.run(layers(3)) == 3
        assert await compute.run(layers(2)) == 2
        assert compute.counter == 5


async def test_a_full_line_is_busy_and_names_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_module, "MAX_QUEUED_JOBS", 2)
    async with open_compute() as compute, trio.open_nursery() as nursery:
        gate = Gate()
        nursery.start_soon(compute.run, gate)
        await gate.entered.wait()
        for urgent in (True, False):
            nursery.start_soon(lambda urgent=urgent: compute.run(lambda _: 1, urgent=urgent))
        await until(lambda: compute.statistics.queued == 2)
        with pytest.raises(Busy, match="2 jobs already wait"):
            await compute.run(lambda _: 1, urgent=True)
        gate.open()
    assert MAX_QUEUED_JOBS == 256


async def test_statistics_tell_how_long_jobs_waited_and_ran() -> None:
    async with open_compute() as compute:
        gate = Gate()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(compute.run, gate)
            await gate.entered.wait()
            nursery.start_soon(compute.run, lambda _: None)
            await until(lambda: compute.statistics.queued == 1)
            gate.open()
        told = compute.statistics
    assert (told.jobs, told.queued) == (2, 0)
    assert told.ran > 0
    assert told.waited > 0


async def test_a_thread_that_dies_takes_waiters_and_the_context_with_it() -> None:
    failures: list[BaseException] = []

    async def ask(compute: ComputeThread, work: Callable[[Job], object]) -> None:
        try:
            await compute.run(work)
        except LocalError as exc:
            failures.append(exc)

    def die(job: Job) -> None:
        gate(job)
        raise SystemExit(3)

    with pytest.raises(LocalError, match=r"died: SystemExit\(3\)"):
        async with open_compute() as compute:
            gate = Gate()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, compute, die)
                await gate.entered.wait()
                nursery.start_soon(ask, compute, lambda _: 1)
                await until(lambda: compute.statistics.queued == 1)
                gate.open()
                await trio.sleep_forever()
    assert [str(exc) for exc in failures] == ["the compute thread died: SystemExit(3)"] * 2


async def test_a_closed_thread_takes_no_work() -> None:
    async with open_compute() as compute:
        pass
    with pytest.raises(LocalError, match="the compute thread is closed"):
        await compute.run(lambda _: 1)


async def test_closing_drops_what_waits_stops_what_runs_and_ends_the_thread() -> None:
    ends: list[str] = []

    async def ask(work: Callable[[Job], object]) -> None:
        with contextlib.suppress(LocalError):
            await compute.run(work)
            ends.append("returned")
        ends.append("ended")

    async with trio.open_nursery() as nursery:
        async with open_compute() as compute:
            gate = Gate()
            nursery.start_soon(ask, gate)
            await gate.entered.wait()
            nursery.start_soon(ask, lambda _: 1)
            await until(lambda: compute.statistics.queued == 1)
            trio.lowlevel.current_trio_token().run_sync_soon(gate.open)
        assert gate.left
        assert "tessella-compute" not in [thread.name for thread in threading.enumerate()]
    assert ends == ["ended", "ended"]


async def test_closing_leaves_no_file_open() -> None:
    before = os.listdir("/dev/fd")
    for _ in range(3):
        async with open_compute() as compute:
            assert await compute.run(lambda job: 1) == 1
            assert len(os.listdir("/dev/fd")) > len(before)
    assert len(os.listdir("/dev/fd")) == len(before)


async def test_a_thread_that_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_module, "CLOSE_SECONDS", 0.05)
    told = r"did not end within 0\.05 s"

    async def ask(compute: ComputeThread, gate: Gate) -> None:
        with pytest.raises(LocalError, match=told):
            await compute.run(gate)

    async with trio.open_nursery() as nursery:
        with pytest.raises(LocalError, match=told):
            async with open_compute() as compute:
                gate = Gate()
                nursery.start_soon(ask, compute, gate)
                await gate.entered.wait()
    assert not gate.left
    gate.open()
