from __future__ import annotations

import pytest
import trio
import trio.testing

from tessella.core.errors import PeerGone, PeerReset
from tessella.worker.nurseries import open_conversation


async def fail(error: Exception) -> None:
    await trio.lowlevel.cancel_shielded_checkpoint()
    raise error


async def test_an_error_of_a_task_leaves_bare_with_its_cause() -> None:
    with pytest.raises(PeerReset, match="gone") as caught:
        async with open_conversation() as nursery:
            try:
                raise KeyError("cause")
            except KeyError as exc:
                error = PeerReset("gone")
                error.__cause__ = exc
            nursery.start_soon(fail, error)
    assert isinstance(caught.value.__cause__, KeyError)


async def test_of_errors_of_ours_one_leaves() -> None:
    with pytest.raises(PeerGone, match=r"^(one|two|three)$"):
        async with open_conversation() as outer:
            outer.start_soon(fail, PeerReset("one"))
            async with open_conversation() as inner:
                inner.start_soon(fail, PeerReset("two"))
                inner.start_soon(fail, PeerReset("three"))


async def test_a_bug_beside_an_error_of_ours_is_not_hidden_by_it() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with open_conversation() as nursery:
            nursery.start_soon(fail, PeerReset("gone"))
            nursery.start_soon(fail, ZeroDivisionError("a bug"))
    assert caught.group_contains(ZeroDivisionError)


async def test_a_cancellation_from_outside_wins_over_an_error() -> None:
    async def fail_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise PeerReset("the stream broke while we left")

    with trio.CancelScope() as scope:
        async with open_conversation() as nursery:
            nursery.start_soon(fail_when_cancelled)
            nursery.start_soon(trio.sleep_forever)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught
