"""Stop strings over a stream of text: nothing of them is shown, nothing else is held for long.

Text that might be the beginning of a stop string is held until the next delta decides. Which stop
ends the answer does not depend on how the text was cut into deltas: the one that is complete
first, and of those complete at the same character the longest.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Feed deltas, show what comes back. Made anew and fed the same text, it ends the same way."""

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises ValueError for an empty stop string: it would end every answer before it began."""
        if not all(stops):
            raise ValueError("an empty stop string")
        self._stops = tuple(stops)
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.found: str | None = None
        """The stop string that ended the answer, once one did."""

    def feed(self, delta: str) -> str:
        """Text that may be shown after this delta; "" for any delta after a stop was found."""
        if self.found is not None:
            return ""
        text = self._held + delta
        ends = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            _, at, self.found = min(ends)
            self._held = ""
            return text[:at]
        shown = len(text) - self._beginning(text)
        self._held = text[shown:]
        return text[:shown]

    def flush(self) -> str:
        """What is still held, when the answer ended for another reason."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        """Characters at the end of the text that a stop string could begin with."""
        for count in range(min(self._longest - 1, len(text)), 0, -1):
            if any(stop.startswith(text[-count:]) for stop in self._stops):
                return count
        return 0
