"""How a peer is reached: its addresses are raced, and equal wishes share one dial."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from tessella.core.addresses import PeerAddress
from tessella.core.errors import PeerGone, PeerUnreachable

# The next address is tried before the last has failed: most that will answer have by then.
STAGGER = 0.150
# One address, from SYN to a multiplexed connection: six round trips of half a second each.
ADDRESS_TIMEOUT = 5.0

Dial = Callable[[str], Awaitable[None]]
"""Connects to one address, or raises PeerGone that says why not."""


async def race(peer: PeerAddress, dial: Dial) -> None:
    """Return when the first address answered. Raises PeerUnreachable that names them all."""
    failures: list[str] = []
    reached = False

    async def attempt(addr: str, failed: trio.Event) -> None:
        nonlocal reached
        try:
            with trio.fail_after(ADDRESS_TIMEOUT):
                await dial(addr)
            reached = True
            nursery.cancel_scope.cancel()
        except trio.TooSlowError:
            failures.append(f"{addr} did not answer within {ADDRESS_TIMEOUT:g} s")
        except PeerGone as exc:
            failures.append(f"{addr} {exc}")
        finally:
            failed.set()

    async with trio.open_nursery() as nursery:
        for addr in peer.addrs:
            failed = trio.Event()
            nursery.start_soon(attempt, addr, failed)
            with trio.move_on_after(STAGGER):
                await failed.wait()
    if not reached:
        raise PeerUnreachable(f"{peer.peer_id}: {_listed(failures)}")


def _listed(failures: Sequence[str]) -> str:
    return "; ".join(failures) if failures else "no address of it is known"


class SharedDials:
    """Dials under way. They run in the nursery of their host and outlive who asked first."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._under_way: dict[PeerAddress, _Outcome] = {}

    async def reach(self, peer: PeerAddress, dial: Dial) -> None:
        """`race`, joined by whoever wants the same meanwhile."""
        outcome = self._under_way.get(peer)
        if outcome is None:
            outcome = self._under_way[peer] = _Outcome()
            self._nursery.start_soon(self._run, peer, dial, outcome)
        await outcome.done.wait()
        if outcome.error is not None:
            raise PeerUnreachable(str(outcome.error)) from outcome.error

    async def _run(self, peer: PeerAddress, dial: Dial, outcome: _Outcome) -> None:
        try:
            await race(peer, dial)
        except PeerUnreachable as exc:
            outcome.error = exc
        finally:
            del self._under_way[peer]
            outcome.done.set()


class _Outcome:
    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: PeerUnreachable | None = None
