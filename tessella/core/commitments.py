"""What a stage binds itself to: a digest for every row, and digests of rows in order.

Two neighbours that handled the same rows have equal commits. A session that was given up leaves
them with different lengths, so a commit also has marks: its value at the powers of two below 32, at
the multiples of a step, and at the few lengths before the last. So any two commits have a length in
common, if only that of one row. What both have in common is the longest of these that agree;
they are at odds if any of these does not.

    row digest   BLAKE2b, 16 bytes, of the row as it travels
    digest(n)    BLAKE2b, 32 bytes, of the first n row digests
"""

from __future__ import annotations

import hashlib

from tessella.core.errors import BadFrame, LocalError
from tessella.core.messages import Commit

ROW_DIGEST_BYTES = 16
DIGEST_BYTES = 32
# Half a digest: whoever finds another row for one has found a collision of 128 bits.
MARK_BYTES = 16
MIN_STEP = 32
# Below the least step: nobody gets by with so few rows that no mark is shared.
FIRST_LENGTHS = (1, 2, 4, 8, 16)
# Marks at multiples of the step: with the two sides of a proof one kilobyte.
MAX_MARKS = 32
# While an answer is decoded neighbours are one or two positions apart.
LAST_LENGTHS = 4


class Rows:
    """The digests of the rows of one side of a stage, from position 0."""

    def __init__(self) -> None:
        self._digests = bytearray()
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        # digest(n) for the lengths that a commit may need: a step of an answer adds one row.
        self._known = {0: self._hash.digest()}

    def copy(self) -> Rows:
        """Others that are the same so far."""
        made = Rows()
        made._digests[:] = self._digests
        made._hash, made._known = self._hash.copy(), self._known.copy()
        return made

    def __len__(self) -> int:
        return len(self._digests) // ROW_DIGEST_BYTES

    def put(self, position: int, data: bytes, count: int) -> None:
        """Rows from a position on, `count` of one size; what was there is forgotten.

        Raises LocalError for a gap before them.
        """
        before = len(self)
        if position > before or count < 1 or len(data) % count:
            raise LocalError(f"{count} rows at {position}, after {before}")
        if position < before:
            self.cut(position)
            before = position
        size = len(data) // count
        view = memoryview(data)
        for start in range(0, len(data), size):
            row = hashlib.blake2b(view[start : start + size], digest_size=ROW_DIGEST_BYTES)
            self._digests += row.digest()
        self._learn(before)

    def cut(self, position: int) -> None:
        """Forget the rows from a position on."""
        del self._digests[position * ROW_DIGEST_BYTES :]
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._known = {0: self._hash.digest()}
        self._learn(0)

    def _learn(self, reached: int) -> None:
        """Hash the rows from there on, and note digests on the way."""
        total, last = len(self), max(0, reached - LAST_LENGTHS)
        for length in range(reached + 1, total + 1):
            if _is_mark(length) or length >= total - LAST_LENGTHS:
                behind = self._digests[reached * ROW_DIGEST_BYTES : length * ROW_DIGEST_BYTES]
                self._hash.update(behind)
                self._known[length] = self._hash.copy().digest()
                reached = length
        for length in range(last, total - LAST_LENGTHS):
            if not _is_mark(length):
                self._known.pop(length, None)

    def commit(self) -> Commit:
        """What binds to all rows so far."""
        total = len(self)
        return Commit(
            stop=total,
            digest=self._known[total],
            marks=b"".join(self._known[length][:MARK_BYTES] for length in _lengths(total)),
            last=b"".join(self._known[length][:MARK_BYTES] for length in _before(total)),
        )


def _is_mark(length: int) -> bool:
    return length in FIRST_LENGTHS or not length % MIN_STEP


def step_of(stop: int) -> int:
    """Positions between two marks: the least power of two that needs at most MAX_MARKS."""
    step = MIN_STEP
    while stop // step > MAX_MARKS:
        step *= 2
    return step


def _lengths(stop: int) -> list[int]:
    step = step_of(stop)
    first = (length for length in FIRST_LENGTHS if length <= stop)
    return [*first, *range(step, stop + 1, step)]


def _before(stop: int) -> list[int]:
    return [stop - back for back in range(1, LAST_LENGTHS + 1) if stop > back]


def check_commit(commit: Commit) -> None:
    """Raises BadFrame for one that no stage makes."""
    if commit.stop < 1 or len(commit.digest) != DIGEST_BYTES:
        raise BadFrame(f"a commit to {commit.stop} rows in {len(commit.digest)} bytes")
    if len(commit.marks) != MARK_BYTES * len(_lengths(commit.stop)):
        raise BadFrame(f"{len(commit.marks)} bytes of marks for {commit.stop} rows")
    if len(commit.last) != MARK_BYTES * len(_before(commit.stop)):
        raise BadFrame(f"{len(commit.last)} bytes of last marks for {commit.stop} rows")


def in_common(a: Commit, b: Commit) -> int:
    """How many rows, from the first, both are known to bind to; 0 where nothing agrees."""
    if a.stop == b.stop and a.digest == b.digest:
        return a.stop
    ours, theirs = _known(a), _known(b)
    return max((length for length, mark in ours.items() if theirs.get(length) == mark), default=0)


def are_at_odds(a: Commit, b: Commit) -> bool:
    """Whether both bind to as many rows somewhere, and these are not the same: one of them is not
    of the rows that went from one to the other."""
    ours, theirs = _known(a), _known(b)
    return any(theirs.get(length, mark) != mark for length, mark in ours.items())


def _known(commit: Commit) -> dict[int, bytes]:
    parts = [
        *zip(_lengths(commit.stop), _cut(commit.marks), strict=False),
        *zip(_before(commit.stop), _cut(commit.last), strict=False),
        (commit.stop, commit.digest[:MARK_BYTES]),
    ]
    return dict(parts)


def _cut(marks: bytes) -> list[bytes]:
    return [marks[start : start + MARK_BYTES] for start in range(0, len(marks), MARK_BYTES)]
