"""A ledger read from its first entry to a signed head, every rule checked on the way.

Strategy. What an entry says holds once its successor names its hash, or a head does. So at the
first break everything before the index that is named is vouched for, and that entry is not. Give
the leaf that a store keeps beside each entry as well, and an altered one is named by itself.
"""

from __future__ import annotations

from tessella.core.errors import BadFrame, BadLedger
from tessella.core.ids import PeerId
from tessella.core.ledger.entries import ZERO_HASH, Entry, add_to, entry_hash, follows, open_entry
from tessella.core.ledger.heads import Head
from tessella.core.ledger.tree import Frontier


class Walk:
    """One reading of the ledger of a musivum; feed it entries in order.

    A walk may go on where another ended, with its frontier and last hash; `balances` are then
    of the entries since. It keeps one number an account, and nothing of the entries.
    """

    def __init__(
        self, origin: PeerId, *, frontier: Frontier | None = None, last: bytes = ZERO_HASH
    ) -> None:
        self.origin = origin
        self.frontier = frontier or Frontier()
        self.last = last
        """The hash of the entry that was fed last."""
        self.balances: dict[str, int] = {}
        """Micro-credits by account."""

    @property
    def size(self) -> int:
        """How many entries were walked; the sequence of the next."""
        return self.frontier.size

    def feed(self, payload: bytes, leaf: bytes | None = None) -> Entry:
        """The next entry, checked; `leaf` is its hash as a store keeps it.

        Raises BadLedger, after which the walk stands where it stood.
        """
        found = entry_hash(payload)
        if leaf is not None and leaf != found:
            raise BadLedger("altered: its hash is not the one kept beside it", self.size)
        entry = self._opened(payload)
        follows(entry, self.last, self.size)
        self.frontier = self.frontier.appended(found)
        self.last = found
        add_to(self.balances, entry)
        return entry

    def _opened(self, payload: bytes) -> Entry:
        try:
            entry = open_entry(payload)
        except BadFrame as exc:
            raise BadLedger(str(exc), self.size) from exc
        if entry.origin != self.origin:
            raise BadLedger(f"it is of the ledger of {entry.origin}", self.size)
        return entry

    def check_head(self, head: Head) -> None:
        """Return if a head, opened before, is of exactly the entries walked.

        Raises BadLedger with the index of the first entry that is missing, or not under the head,
        or, where a whole other history was signed, of the last.
        """
        if head.origin != self.origin:
            raise BadLedger(f"the head is of the ledger of {head.origin}", 0)
        if head.size > self.size:
            raise BadLedger(f"the tail is cut: the head is of {head.size} entries", self.size)
        if head.size < self.size:
            raise BadLedger(f"rolled back: the head is of {head.size} entries", head.size)
        if head.last != self.last:
            raise BadLedger("altered or a fork: the head has another last entry", self.size - 1)
        if head.root != self.frontier.root:
            raise BadLedger("the head has the root of other entries", 0)
