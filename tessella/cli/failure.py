"""What goes wrong in a command and nowhere below it."""

from __future__ import annotations

from collections.abc import Sequence

from tessella.core.errors import PeerGone, TessellaError


class DownloadFailed(PeerGone):
    """A model could not be fetched: no network, or an index that does not answer."""

    code = "download_failed"


class ProcessDied(TessellaError):
    """A program that this command started ended before it was told to."""

    code = "process_died"

    def __init__(self, text: str, *, retry: bool, log: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.retry = retry
        for line in log:
            self.add_note(f"  | {line}")
