"""How many bodies of hops are read at once: each may be 64 MiB until its stage has taken it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tessella.core.errors import TooManyHopBodies


class HopBodies:
    """The bodies that are being read here."""

    def __init__(self, limit: int) -> None:
        """`limit` bodies at once, at least 1."""
        self.limit = limit
        self.in_flight = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Room for one body. Raises TooManyHopBodies, before a byte of it is read."""
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
