"""What any question may be answered with."""

from __future__ import annotations

from dataclasses import dataclass

from tessella.core.errors import TessellaError

# A line for a person; four bytes a character still fit a frame's string.
MAX_FAIL_CHARS = 1000


@dataclass(frozen=True, slots=True)
class Fail:
    """The other side's request ends with this error. `code` is from the error tree."""

    code: str
    text: str
    retry: bool

    @classmethod
    def of(cls, error: TessellaError) -> Fail:
        """What a peer is told of an error. A long text is cut: it may quote what was sent."""
        return cls(error.code, error.told()[:MAX_FAIL_CHARS], error.retry)
