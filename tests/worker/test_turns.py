from __future__ import annotations

import threading

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tessella.core.errors import Busy
from tessella.core.tiers import HEAD_START_SECONDS, Tier
from tessella.worker.turns import Turns

# Seconds after which a thread of a test gives up, so that a failure is a failure and not a hang.
PATIENCE = 10.0


async def test_so_many_have_a_place_and_the_next_gets_it_when_one_leaves() -> None:
    turns, got = Turns(2, 8, "texts"), trio.Event()
    for _ in range(2):
        await turns.of(Tier.LEECH).acquire_on_behalf_of(None)

    async def wait() -> None:
        await turns.of(Tier.LEECH).acquire_on_behalf_of(None)
        got.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        assert not got.is_set()
        turns.leave()
        # It is theirs from now on: nobody who comes a moment later takes it.
        assert turns.free == 0
    turns.leave()
    assert turns.free == 1


async def test_who_is_due_first_gets_the_place(autojump_clock: MockClock) -> None:
    turns = Turns(1, 8, "texts")
    order: list[str] = []
    await turns.of(Tier.VIP).acquire_on_behalf_of(None)

    async def wait(name: str, tier: Tier) -> None:
        turn = turns.of(tier)
        await turn.acquire_on_behalf_of(None)
        order.append(name)
        turn.release_on_behalf_of(None)

    async with trio.open_nursery() as nursery:
        for name, tier, pause in (
            ("old leech", Tier.LEECH, 2 * HEAD_START_SECONDS + 1),
            ("fresh leech", Tier.LEECH, 0.5),
            ("standard", Tier.STANDARD, 0.5),
            ("vip", Tier.VIP, 0.0),
        ):
            nursery.start_soon(wait, name, tier)
            await trio.sleep(pause)
            await wait_all_tasks_blocked()
        turns.leave()
    assert order == ["old leech", "vip", "standard", "fresh leech"]


async def test_whoever_finds_too_many_waiting_is_told_at_once() -> None:
    turns = Turns(1, 1, "texts")
    await turns.of(Tier.VIP).acquire_on_behalf_of(None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.of(Tier.LEECH).acquire_on_behalf_of, None)
        await wait_all_tasks_blocked()
        with pytest.raises(Busy, match="1 texts already wait"):
            await turns.of(Tier.VIP).acquire_on_behalf_of(None)
        nursery.cancel_scope.cancel()


async def test_one_that_stops_waiting_is_not_given_a_place() -> None:
    turns = Turns(1, 8, "texts")
    await turns.of(Tier.VIP).acquire_on_behalf_of(None)
    with trio.move_on_after(0):
        await turns.of(Tier.VIP).acquire_on_behalf_of(None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.of(Tier.LEECH).acquire_on_behalf_of, None)
        await wait_all_tasks_blocked()
        assert len(turns.waiting) == 1
        nursery.cancel_scope.cancel()
    assert len(turns.waiting) == 0
    turns.leave()
    assert turns.free == 1


async def test_a_thread_left_behind_keeps_its_place_until_it_ends() -> None:
    turns, go, entered = Turns(1, 8, "texts"), threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    def work() -> None:
        token.run_sync_soon(entered.set)
        go.wait(PATIENCE)

    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def leave_it() -> None:
            await trio.to_thread.run_sync(
                work,
                abandon_on_cancel=True,  # type: ignore[call-arg, unused-ignore]
                limiter=turns.of(Tier.VIP),  # type: ignore[arg-type]
            )

        await entered.wait()
        nursery.cancel_scope.cancel()
    assert turns.free == 0
    go.set()
    with trio.fail_after(PATIENCE):
        await turns.of(Tier.LEECH).acquire_on_behalf_of(None)
    assert turns.free == 0
