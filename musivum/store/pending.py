"""What waits for the next batch: saves, whose callers wait too, and notes, whose callers do not.

A batch is all there is. Of two changes with one key the later is written, whoever made it. When a
batch fails its saves are forgotten, as their callers are told, and its notes wait again.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from musivum.store.changes import Change, Key, key_of
from tessella.core.errors import StoreUnavailable, TessellaError

# Two for every node there may be. More keys than that within a second is not what notes are for.
MAX_NOTES = 32_768
# Every node there may be registers at once, after a restart.
MAX_SAVED_CHANGES = 32_768


@dataclass(slots=True, eq=False)
class Waiter:
    """A caller that waits for its changes to be written."""

    done: trio.Event = field(default_factory=trio.Event)
    error: TessellaError | None = None

    def end(self, error: TessellaError | None = None) -> None:
        """Wake it: all is written, or this is why nothing is."""
        self.error = error
        self.done.set()


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes, no two of one key, and whom to tell."""

    changes: tuple[Change, ...]
    waiters: tuple[Waiter, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    place: int
    change: Change


class Pending:
    """The queue. One batch at a time is taken, and then settled or put back."""

    def __init__(self) -> None:
        self._places = itertools.count()
        self._notes: dict[Key, _Entry] = {}
        self._taken: dict[Key, _Entry] = {}
        self._saves: list[_Entry] = []
        self._waiters: list[Waiter] = []

    @property
    def has_saves(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiters)

    @property
    def notes(self) -> int:
        """Notes of no batch yet."""
        return len(self._notes)

    def note(self, changes: Sequence[Change]) -> None:
        """Write these some time soon.

        Raises StoreUnavailable, and takes none, where there would be too many.
        """
        keyed = {key_of(change): change for change in changes}
        fresh = sum(key not in self._notes for key in keyed)
        if len(self._notes) + len(self._taken) + fresh > MAX_NOTES:
            raise StoreUnavailable(f"{MAX_NOTES} notes wait to be written")
        for key, change in keyed.items():
            self._notes[key] = _Entry(next(self._places), change)

    def save(self, changes: Sequence[Change]) -> Waiter:
        """Write these now. Raises StoreUnavailable where too many wait."""
        if len(self._saves) + len(changes) > MAX_SAVED_CHANGES:
            raise StoreUnavailable(f"{len(self._saves)} changes wait to be written")
        self._saves.extend(_Entry(next(self._places), change) for change in changes)
        waiter = Waiter()
        self._waiters.append(waiter)
        return waiter

    def take(self) -> Batch:
        """All that waits."""
        entries = sorted([*self._notes.values(), *self._saves], key=lambda entry: entry.place)
        changes = {key_of(entry.change): entry.change for entry in entries}
        batch = Batch(tuple(changes.values()), tuple(self._waiters))
        self._taken, self._notes = self._notes, {}
        self._saves, self._waiters = [], []
        return batch

    def settle(self) -> None:
        """The batch is written."""
        self._taken = {}

    def put_back(self) -> None:
        """The batch is not written: its notes wait again, unless there is a later one."""
        self._notes = {**self._taken, **self._notes}
        self._taken = {}
