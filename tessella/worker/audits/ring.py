"""What left this node in paid sessions, kept for a while for whoever is ordered to look at it.

    run      the rows of one session from position 0, or its token ids, in pieces
    piece    what one step gave; runs of one conversation share those before they part

The oldest run of rows makes room for what comes, and ids only where there are no rows left: they
take little, and without them no audit of an entry can begin. A session that begins anew under the
same ticket has a run of its own, and what cannot be told apart from another is not shown: an
auditor would take one for the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Lock

from tessella.core.frames import MIB
from tessella.core.shapes import DType
from tessella.core.tensors import WireTensor
from tessella.worker.proofs.witness import Ticketing
from tessella.worker.terms import ID_BYTES

# Audits are drawn while a proof is settled: within minutes, for all but nodes that were cut off.
KEPT_SECONDS = 3600.0
DEFAULT_RING_MB = 256
# One session may not push out all others.
LARGEST_PART = 4
# What a piece takes beside its bytes; the steps of an answer have one each.
PIECE_OVERHEAD = 200
# Rows of a frame for an auditor: a millisecond of hashing, and of a slow link some tenths of one.
SHOWN_BYTES = MIB


@dataclass(slots=True)
class _Piece:
    data: bytes
    users: int = 1

    @property
    def cost(self) -> int:
        return len(self.data) + PIECE_OVERHEAD


@dataclass(frozen=True, slots=True)
class _Part:
    """The first `count` rows of a piece, at their place."""

    piece: _Piece
    position: int
    count: int
    row_bytes: int

    @property
    def stop(self) -> int:
        return self.position + self.count


@dataclass(slots=True, eq=False)
class _Run:
    """One side of one session. `dtype` is None for token ids."""

    key: tuple[bytes, bool]
    dtype: DType | None
    parts: list[_Part] = field(default_factory=list)
    cost: int = 0
    touched: float = 0.0
    gone: bool = False

    @property
    def stop(self) -> int:
        return self.parts[-1].stop if self.parts else 0


class Held:
    """One session's side of the ring. A `Kept`."""

    def __init__(self, ring: Ring, run: _Run) -> None:
        self._ring, self._run = ring, run

    def put(self, position: int, data: bytes, count: int) -> None:
        """Rows from a position on; what was there and after it is forgotten. Never raises.

        Rows after a gap cannot be shown: the session is kept no further.
        """
        self._ring._put(self._run, position, data, count)

    def go_on_from(self, before: object) -> None:
        """Take over the rows of the session that this one goes on with, before its first step."""
        if isinstance(before, Held):
            self._ring._go_on(self._run, before._run)


class Ring:
    """The kept rows of one node. Rows are put in the compute thread, and shown in the loop."""

    def __init__(
        self,
        limit_bytes: int = DEFAULT_RING_MB * MIB,
        seconds: float = KEPT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """With a limit of 0 nothing is kept."""
        self._limit, self._seconds, self._clock = limit_bytes, seconds, clock
        self._lock = Lock()
        # The one that was put to longest ago first.
        self._runs: dict[_Run, None] = {}
        self._by_key: dict[tuple[bytes, bool], list[_Run]] = {}
        self._used = 0

    @property
    def used(self) -> int:
        """Bytes that are kept, and what keeping them takes."""
        return self._used

    def outputs(self, ticketing: Ticketing) -> Held | None:
        """What keeps the rows that leave in one session."""
        return self._begin((ticketing.request_id, False), ticketing.dtype)

    def ids(self, ticketing: Ticketing) -> Held | None:
        """What keeps the ids that come in one session, at its entry."""
        return self._begin((ticketing.request_id, True), None)

    def rows(self, request_id: bytes, stop: int) -> Iterator[tuple[int, WireTensor]] | None:
        """The rows of `[0, stop)` with their positions, in frames of at most SHOWN_BYTES or a row.

        None if they are not kept, or it cannot be said which of two sessions is meant.
        """
        with self._lock:
            run = self._find((request_id, False), stop)
            if run is None or run.dtype is None:
                return None
            parts, dtype = list(run.parts), run.dtype
        return _frames(parts, dtype, stop)

    def token_ids(self, request_id: bytes, stop: int) -> bytes | None:
        """The ids of `[0, stop)`, u32 little endian; None as for `rows`."""
        with self._lock:
            run = self._find((request_id, True), stop)
            parts = list(run.parts) if run is not None else []
        ids = b"".join(part.piece.data[: part.count * ID_BYTES] for part in parts)
        return ids[: stop * ID_BYTES] or None

    def expire(self) -> None:
        """Let go of what is older than an hour."""
        with self._lock:
            self._expire()

    def clear(self) -> None:
        """Let go of everything: this node serves other layers."""
        with self._lock:
            for run in list(self._runs):
                self._drop(run)

    def _begin(self, key: tuple[bytes, bool], dtype: DType | None) -> Held | None:
        return Held(self, _Run(key, dtype)) if self._limit > 0 else None

    def _put(self, run: _Run, position: int, data: bytes, count: int) -> None:
        with self._lock:
            if run.gone:
                return
            self._truncate(run, position)
            if not _follows(run, position, data, count):
                self._drop(run)
                return
            piece = _Piece(data)
            self._used += piece.cost
            run.cost += piece.cost
            run.parts.append(_Part(piece, position, count, len(data) // count))
            self._touch(run)
            if run.cost > self._limit // LARGEST_PART:
                self._drop(run)
            self._expire()
            while self._used > self._limit:
                self._drop(self._least())

    def _least(self) -> _Run:
        """Who makes room: the oldest rows, for which a sketch stands in; of ids nothing does."""
        return next((run for run in self._runs if run.dtype is not None), next(iter(self._runs)))

    def _go_on(self, run: _Run, before: _Run) -> None:
        with self._lock:
            if run.gone or run.parts or before.gone or run.dtype is not before.dtype:
                return
            run.parts, run.cost = list(before.parts), before.cost
            for part in run.parts:
                part.piece.users += 1
            self._touch(run)

    def _touch(self, run: _Run) -> None:
        run.touched = self._clock()
        if run not in self._runs:
            self._by_key.setdefault(run.key, []).append(run)
        self._runs.pop(run, None)
        self._runs[run] = None

    def _truncate(self, run: _Run, position: int) -> None:
        while run.parts and run.stop > position:
            part = run.parts.pop()
            if part.position < position:
                # Its bytes stay, as long as any row of them does.
                kept = position - part.position
                run.parts.append(_Part(part.piece, part.position, kept, part.row_bytes))
            else:
                self._leave(run, part.piece)

    def _leave(self, run: _Run, piece: _Piece) -> None:
        run.cost -= piece.cost
        piece.users -= 1
        if not piece.users:
            self._used -= piece.cost

    def _drop(self, run: _Run) -> None:
        run.gone = True
        for part in run.parts:
            self._leave(run, part.piece)
        run.parts = []
        if run not in self._runs:
            return
        del self._runs[run]
        others = self._by_key[run.key]
        others.remove(run)
        if not others:
            del self._by_key[run.key]

    def _expire(self) -> None:
        oldest = self._clock() - self._seconds
        while self._runs and (run := next(iter(self._runs))).touched < oldest:
            self._drop(run)

    def _find(self, key: tuple[bytes, bool], stop: int) -> _Run | None:
        self._expire()
        runs = [run for run in self._by_key.get(key, ()) if run.stop >= stop]
        # A proof is of all that its session had, so that its stop tells sessions apart.
        found = [run for run in runs if run.stop == stop] or runs
        return found[0] if len(found) == 1 else None


def _follows(run: _Run, position: int, data: bytes, count: int) -> bool:
    """Whether rows go on where a run ends, and are as large as its others."""
    if position != run.stop or count < 1 or len(data) % count:
        return False
    return not run.parts or run.parts[-1].row_bytes == len(data) // count


def _frames(parts: list[_Part], dtype: DType, stop: int) -> Iterator[tuple[int, WireTensor]]:
    """Rows of pieces that follow one another, in frames that are copied one at a time."""
    taken: list[bytes] = []
    position = count = 0
    for part in parts:
        row = part.row_bytes
        each, last = max(1, SHOWN_BYTES // row), min(part.count, stop - part.position)
        for first in range(0, last, each):
            more = min(each, last - first)
            if count and count + more > each:
                yield position, _tensor(taken, count, row, dtype)
                taken, count = [], 0
            position = position if count else part.position + first
            taken.append(part.piece.data[first * row : (first + more) * row])
            count += more
    if count:
        yield position, _tensor(taken, count, parts[0].row_bytes, dtype)


def _tensor(taken: list[bytes], count: int, row_bytes: int, dtype: DType) -> WireTensor:
    return WireTensor(dtype.value, (count, row_bytes // dtype.itemsize), b"".join(taken))
