"""What is done about who cheats, as the doors need it: audits, penalties, and who is let in."""

from __future__ import annotations

from typing import Protocol

from musivum.audits.standing import BAR_DAYS
from musivum.nodes.reputation import NO_AUDITS, AuditCounts
from tessella.core.errors import Refused
from tessella.core.ids import PeerId
from tessella.core.messages import AuditReport, AuditTask, Marks


class Penalty(Protocol):
    """What was done to an account, or taken back."""

    @property
    def micro(self) -> int:
        """Micro-credits by which it moved: below 0 for a fine, above for one given back."""

    @property
    def balance(self) -> int:
        """What it has after that."""

    @property
    def until(self) -> float | None:
        """Until when it is let in nowhere, in seconds since 1970; None where it may come."""

    @property
    def sequence(self) -> int:
        """The ledger's entry that says so."""


class Counted(Protocol):
    """What audits found of everybody."""

    def counts(self, peer_id: PeerId) -> AuditCounts:
        """Of one peer, as much of it as still counts."""


class AuditRoom(Protocol):
    """Draws audits, hears of them, and keeps who is suspected or barred.

    A caller's key was proven. What waits raises StoreUnavailable.
    """

    @property
    def standings(self) -> Counted:
        """What is known of every worker."""

    async def next_task(self, caller: PeerId) -> AuditTask | None:
        """Something that the caller is to audit; None if there is nothing."""

    async def report(self, caller: PeerId, report: AuditReport) -> None:
        """What an auditor found. Raises NotAuthorized for an audit that is not the caller's, and
        BadRequest for what is no report."""

    async def marks(self, caller: PeerId, marks: Marks) -> None:
        """What a canary marked. Raises NotAuthorized for a caller that is none, and BadRequest."""

    def suspects(self, peer_id: PeerId) -> bool:
        """Whether an audit of late was against a peer."""

    def weight(self, peer_id: PeerId) -> float:
        """How many times as dear as it measures a node is to routing: 1 or more."""

    def barred(self, peer_id: PeerId) -> str | None:
        """Why a peer is let in nowhere, in a sentence; None if it may come."""

    def is_benched(self, peer_id: PeerId) -> bool:
        """Whether no ticket may name a peer, since it hides what it was asked."""

    def held_against(self, peer_id: PeerId) -> str:
        """What audits found of a peer that matters now, in a sentence; empty for nothing."""

    def counters(self) -> dict[str, int]:
        """Audits by what became of them since the start, and how many are `open` now."""

    async def slash(
        self, peer_id: PeerId, reason: str, micro: int | None = None, days: float = BAR_DAYS
    ) -> Penalty:
        """Take micro-credits from a peer, at most what it has, and bar it for so many days.

        `micro` None takes what the rule of fines says.
        """

    async def appeal(self, peer_id: PeerId, reason: str) -> Penalty:
        """Give back all that was taken from a peer, and let it in again."""


class NoAudits:
    """Where nothing is audited: there is nothing to do, and what is told is let go."""

    @property
    def standings(self) -> NoAudits:
        """Nothing is known."""
        return self

    def counts(self, peer_id: PeerId) -> AuditCounts:
        """Nothing was found."""
        return NO_AUDITS

    async def next_task(self, caller: PeerId) -> AuditTask | None:
        """Nothing."""
        return None

    async def report(self, caller: PeerId, report: AuditReport) -> None:
        """Heard."""

    async def marks(self, caller: PeerId, marks: Marks) -> None:
        """Heard."""

    def suspects(self, peer_id: PeerId) -> bool:
        """Nobody is."""
        return False

    def weight(self, peer_id: PeerId) -> float:
        """As dear as it measures."""
        return 1.0

    def barred(self, peer_id: PeerId) -> str | None:
        """Nobody is."""
        return None

    def is_benched(self, peer_id: PeerId) -> bool:
        """Nobody is."""
        return False

    def held_against(self, peer_id: PeerId) -> str:
        """Nothing."""
        return ""

    def counters(self) -> dict[str, int]:
        """None were drawn."""
        return {}

    async def slash(
        self, peer_id: PeerId, reason: str, micro: int | None = None, days: float = BAR_DAYS
    ) -> Penalty:
        """Raises Refused."""
        raise Refused("this musivum audits nothing, and keeps no penalties")

    async def appeal(self, peer_id: PeerId, reason: str) -> Penalty:
        """Raises Refused."""
        raise Refused("this musivum audits nothing, and keeps no penalties")
