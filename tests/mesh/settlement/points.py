"""The points of settlement at which a program is killed, and the file that says which.

worker    w0 before the proof is in the book    w1 before that is committed    w2 after it
          w3 half of the proofs sent            w4 all sent, no answer read    w5 answer read
          w6 what became of them is written down
musivum   o0 proofs read                        o1 an entry is in              o2 balances are in
          o3 committed, not answered            o4 half of the answer sent
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

WORKER, MUSIVUM = "tessella.cli.worker", "musivum.cli.__main__"
# Names a file in the home of a program with seconds by which its clock is ahead.
AHEAD = "ahead"
WORKER_POINTS = ("w0", "w1", "w2", "w3", "w4", "w5", "w6")
MUSIVUM_POINTS = ("o0", "o1", "o2", "o3", "o4")
POSITIONS = ("entry", "middle", "tail")


@dataclass(frozen=True, slots=True)
class Trap:
    """A file in the home of a program: while it is there, one point of its life is the last."""

    home: Path

    @property
    def _file(self) -> Path:
        return self.home / "dies-at"

    def set(self, point: str, worker: str) -> None:
        """Have the program die at a point, when it is about the proof of that worker."""
        written = self._file.with_suffix(".written")
        written.write_text(f"{point} {worker}")
        written.rename(self._file)

    def is_set(self, point: str, worker: str) -> bool:
        """Whether this is it."""
        try:
            return self._file.read_text() == f"{point} {worker}"
        except FileNotFoundError:
            return False

    @property
    def is_sprung(self) -> bool:
        """Whether the program was at its point."""
        return not self._file.exists()

    def spring(self) -> None:
        """It is gone before the program is: the next life goes past this point."""
        self._file.unlink()
