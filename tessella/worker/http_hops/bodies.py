"""How many bodies of hops are read at once: each may be 64 MiB until its stage has taken it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tessella.core.errors import TooManyHopBodies
from tessella.core.frames import KIB
from tessella.worker.http_hops.asks import MAX_HOP_BODY

SMALL_BODY = 256 * KIB
"""Of a body that needs no place, where its length is told first. A decode step is a tenth of it,
and does not wait for prefills that come slowly; 512 connections hold 128 MiB of such bodies."""


def that_fit(bodies: int, free_bytes: int) -> int:
    """So many bodies at once, or as many as so much free memory holds; 1 at least.

    A body is twice in memory while its frames are cut out of it.
    """
    return max(1, min(bodies, free_bytes // (2 * MAX_HOP_BODY)))


class HopBodies:
    """The bodies that are being read here."""

    def __init__(self, limit: int, *, small: int = SMALL_BODY) -> None:
        """`limit` bodies at once, at least 1, beside those of `small` bytes or less."""
        self.limit = limit
        self.in_flight = 0
        self._small = small

    @contextmanager
    def place(self, length: int | None = None) -> Iterator[None]:
        """Room for one body of so many bytes; None where nobody told how many.

        A small one needs none, and its reader has to see that it is no longer than was told. Raises
        TooManyHopBodies, before a byte of the body is read.
        """
        if length is not None and length <= self._small:
            yield
            return
        if self.in_flight >= self.limit:
            raise TooManyHopBodies(
                f"this node reads {self.limit} hop bodies at once: it is full, not broken, so wait "
                "and retry here"
            )
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
