"""The secrets that audits are drawn with: one a day, bound in the ledger before it is used.

    begin   an entry `commit HEX`, the SHA-256 of the secret, before the first draw with it
    end     an entry `secret HEX`, the secret itself, after the last

No worker can tell beforehand which of its hops is drawn, and anybody can check afterwards which of
them had to be: musivum could not choose a secret to go with hops that it had seen.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from musivum.audits.keeping import Epoch, add_epoch, drop_epochs, read_epochs
from musivum.clocks import Clock
from musivum.ledger import Draft, Movement

T = TypeVar("T")

EPOCH_SECONDS = 24 * 3600.0
SECRET_BYTES = 32
KIND = "epoch"


class Writes(Protocol):
    """Of the ledger, what adds entries with other writing in one transaction."""

    async def write(self, work: Callable[[Draft], T]) -> T:
        """Run `work` on a draft of what is added."""


class Epochs:
    """The epoch that runs. Whoever opens it calls `turn` now and then."""

    def __init__(self, ledger: Writes, clock: Clock, kept: Sequence[Epoch]) -> None:
        """`kept` are those whose secret is not told yet, oldest first, at least one."""
        self._ledger = ledger
        self._clock = clock
        self._current = kept[-1]
        self._has_told = len(kept) == 1

    @property
    def secret(self) -> bytes:
        """What audits are drawn with now."""
        return self._current.secret

    @property
    def number(self) -> int:
        """Which epoch it is, from 1."""
        return self._current.number

    async def turn(self) -> bool:
        """Begin the next epoch if this one is over; returns whether it was.

        The secret of an epoch is told only after the next one has begun: whoever learns it can draw
        no audit of it any more. Raises StoreUnavailable, and what is left is done the next time.
        """
        now = self._clock()
        is_over = now >= self._current.began_at + EPOCH_SECONDS
        if is_over:
            self._current = await _begin(self._ledger, self._current.number + 1, now)
            self._has_told = False
        if not self._has_told:
            running = self._current.number
            await self._ledger.write(lambda draft: _tell(draft, running))
            self._has_told = True
        return is_over


async def open_epochs(ledger: Writes, clock: Clock) -> Epochs:
    """The epoch that ran when the program ended, or the first. Raises StoreUnavailable."""
    known = await ledger.write(lambda draft: read_epochs(draft.connection))
    return Epochs(ledger, clock, known or [await _begin(ledger, 1, clock())])


async def _begin(ledger: Writes, number: int, now: float) -> Epoch:
    epoch = Epoch(number, secrets.token_bytes(SECRET_BYTES), now)
    commit = hashlib.sha256(epoch.secret).hexdigest()

    def work(draft: Draft) -> None:
        add_epoch(draft.connection, epoch)
        draft.append(Movement(KIND, (), f"commit {commit}"))

    await ledger.write(work)
    return epoch


def _tell(draft: Draft, running: int) -> None:
    over = [epoch for epoch in read_epochs(draft.connection) if epoch.number < running]
    for epoch in over:
        draft.append(Movement(KIND, (), f"secret {epoch.secret.hex()}"))
    drop_epochs(draft.connection, over)
