"""The audits that are open: drawn, and not decided yet. They are not kept over a restart.

Of a full queue whoever has most audits in it loses the oldest: so many hops of one worker, or of
many that somebody made up, push out their own.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from musivum.audits.needs import ByNeed, Need, need_of
from musivum.audits.opinions import Opinion
from tessella.core.audit_orders import AUDIT_ID_BYTES
from tessella.core.ids import PeerId
from tessella.core.numeric import NumericClass
from tessella.core.proofs import Claim, SignedProof

# Each holds a proof of at most 32 KiB; a mesh of hundreds of hops a minute draws a few a second.
MAX_OPEN = 4096
# What was kept of a request is let go of an hour after it ended. Ten minutes of that are for who is
# given its audit last: later nothing that cannot be seen speaks against anybody.
OPEN_SECONDS = 3000.0


@dataclass(frozen=True, slots=True)
class Given:
    """A task that an auditor has, and until when its report is taken."""

    audit_id: bytes
    auditor: PeerId
    until: float


@dataclass(slots=True, eq=False)
class OpenAudit:
    """One hop that is looked at. Times are seconds of a clock that never goes back."""

    claim: Claim
    signed: SignedProof
    klass: NumericClass
    closes_at: float
    """Until then its rows have to be there."""
    free_since: float
    """Since when anybody may have it."""
    opinions: list[Opinion] = field(default_factory=list)
    in_vain: list[str] = field(default_factory=list)
    """Of auditors that could not see its rows, which: a word each."""
    asked: set[PeerId] = field(default_factory=set)
    """Everybody who was given it, whatever came of that."""
    given: Given | None = None
    lifted: dict[PeerId, int] = field(default_factory=dict)
    """Of whom this audit made a suspect: their `suspect_left` before."""
    need: Need = field(init=False)

    def __post_init__(self) -> None:
        self.need = need_of(self.claim, self.klass)

    @property
    def worker(self) -> PeerId:
        """Who is audited."""
        return self.claim.worker


class OpenAudits:
    """At most MAX_OPEN audits, oldest first."""

    def __init__(self) -> None:
        # A set in the order of its keys.
        self._open: dict[OpenAudit, None] = {}
        self._by_need = ByNeed[OpenAudit]()
        self._of: Counter[PeerId] = Counter()
        self._named: dict[bytes, OpenAudit] = {}
        self._given_to: Counter[PeerId] = Counter()
        # By auditor, whom it spoke against, and in how many audits.
        self._accused: dict[PeerId, Counter[PeerId]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenAudit]:
        return iter(list(self._open))

    def __contains__(self, audit: OpenAudit) -> bool:
        return audit in self._open

    def add(self, audit: OpenAudit) -> OpenAudit | None:
        """Open one more; returns the one that had to make room for it, if there was no room."""
        dropped = self._make_room() if len(self._open) >= MAX_OPEN else None
        self._open[audit] = None
        self._by_need.add(audit.need, audit)
        self._of[audit.worker] += 1
        return dropped

    def _make_room(self) -> OpenAudit:
        ((most, _),) = self._of.most_common(1)
        oldest = self.of(most)[0]
        self.close(oldest)
        return oldest

    def close(self, audit: OpenAudit) -> None:
        """It is decided, or given up. One that is not open is no error."""
        if audit in self._open:
            del self._open[audit]
            self._by_need.remove(audit.need, audit)
            _count_down(self._of, audit.worker)
            self._take_back(audit)
            for opinion in filter(_is_bad, audit.opinions):
                accused = self._accused[opinion.auditor]
                _count_down(accused, audit.worker)
                if not accused:
                    del self._accused[opinion.auditor]

    def give(self, audit: OpenAudit, auditor: PeerId, until: float) -> Given:
        """Let an auditor have one. Each time it has another name: orders are good for once."""
        audit.given = Given(secrets.token_bytes(AUDIT_ID_BYTES), auditor, until)
        audit.asked.add(auditor)
        self._named[audit.given.audit_id] = audit
        self._given_to[auditor] += 1
        return audit.given

    def say(self, audit: OpenAudit, opinion: Opinion) -> None:
        """An auditor said that of an open one."""
        audit.opinions.append(opinion)
        if opinion.is_bad:
            self._accused.setdefault(opinion.auditor, Counter())[audit.worker] += 1

    def accused_by(self, auditor: PeerId) -> int:
        """How many workers an auditor spoke against, about whom that is not decided."""
        return len(self._accused.get(auditor, ()))

    def free(self, audit: OpenAudit, now: float) -> None:
        """Nobody has it any more."""
        self._take_back(audit)
        audit.free_since = now

    def _take_back(self, audit: OpenAudit) -> None:
        if audit.given is not None:
            del self._named[audit.given.audit_id]
            _count_down(self._given_to, audit.given.auditor)
            audit.given = None

    def free_for(self, holds: Callable[[Need], bool]) -> list[OpenAudit]:
        """Those that nobody has and that take what somebody holds, oldest first."""
        return [audit for audit in self._by_need.that(holds) if audit.given is None]

    def of(self, peer_id: PeerId) -> list[OpenAudit]:
        """Those of one worker, oldest first."""
        if peer_id not in self._of:
            return []
        return [audit for audit in self._open if audit.worker == peer_id]

    def held_by(self, auditor: PeerId) -> int:
        """How many tasks an auditor has now."""
        return self._given_to[auditor]

    def named(self, audit_id: bytes) -> OpenAudit | None:
        """The one whose task has this name now."""
        return self._named.get(audit_id)


def _is_bad(opinion: Opinion) -> bool:
    return opinion.is_bad


def _count_down(counter: Counter[PeerId], peer_id: PeerId) -> None:
    counter[peer_id] -= 1
    if not counter[peer_id]:
        del counter[peer_id]
