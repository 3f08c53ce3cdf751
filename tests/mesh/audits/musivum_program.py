"""A musivum that tells of each audit in a line of JSON, beside what it tells anyway.

python -m tests.mesh.audits.musivum_program [ARGUMENTS OF musivum]

    {"event": "opinion", "worker": ..., "auditor": ..., "verdict": ..., "request": ..., "at": ...}
    {"event": "in_vain", "worker": ..., "word": ..., "at": ...}
    {"event": "unseen", "worker": ..., "at": ...}
    {"event": "benched", "worker": ..., "at": ...}
    {"event": "slashed", "worker": ..., "reason": ..., "at": ...}

Waits are shorter than a mesh needs, so that a test is over sooner; all else is as it is.
"""

from __future__ import annotations

import json
import time

from musivum.audits import choosing, desk
from musivum.audits.hearing import Hearing
from musivum.audits.opinions import opinion_of
from musivum.audits.penalties import Penalties
from musivum.audits.queue import OpenAudit
from musivum.cli import run
from musivum.ledger import kept, room
from tessella.core import attesting
from tessella.core.ids import PeerId
from tessella.core.messages import AuditReport


def tell(event: str, worker: PeerId, *, at: float | None = None, **more: object) -> None:
    """A line on stdout; `at` is seconds since 1970."""
    fact = {"event": event, "worker": worker, "at": time.time() if at is None else at, **more}
    print(json.dumps(fact), flush=True)  # noqa: T201 - what is read by whoever asked


# Longer than any proof takes to come, on a machine that is busy.
NEIGHBOUR_SECONDS = 6.0
SWEEP_SECONDS = 0.5


def shorten_waits() -> None:
    """Nobody waits long for another auditor, nor a proof for a neighbour's."""
    attesting.NEIGHBOUR_SECONDS = NEIGHBOUR_SECONDS
    kept.NEIGHBOUR_SECONDS = NEIGHBOUR_SECONDS  # type: ignore[attr-defined]
    room.SWEEP_SECONDS = SWEEP_SECONDS
    choosing.TURN_SECONDS, choosing.SETTLING_SECONDS, choosing.FRESH_SECONDS = 1.0, 2.0, 0.5
    choosing.NOVICE_SECONDS = 4.0
    desk.TICK_SECONDS = 0.2


def tell_of_audits() -> None:
    """Tell what auditors say, and what follows."""
    heard, in_vain, punish = Hearing.heard, Hearing.in_vain, Penalties.punish
    shown, shown_ids = Hearing._shown, Hearing._shown_ids

    async def tell_heard(
        self: Hearing, audit: OpenAudit, auditor: PeerId, report: AuditReport
    ) -> None:
        layers = len(audit.claim.proof.layers)
        opinion = opinion_of(auditor, report, audit.klass, layers)
        tell(
            "opinion",
            audit.worker,
            auditor=auditor,
            request=audit.claim.request_id.hex(),
            verdict=opinion.verdict.value,
            reason=opinion.reason,
            found=report.found,
        )
        await heard(self, audit, auditor, report)

    async def tell_in_vain(self: Hearing, audit: OpenAudit, word: str) -> None:
        tell("in_vain", audit.worker, word=word)
        await in_vain(self, audit, word)

    def tell_shown(self: Hearing, peer_id: PeerId, *, is_shown: bool) -> None:
        shown(self, peer_id, is_shown=is_shown)
        if not is_shown:
            tell("unseen", peer_id)

    def tell_shown_ids(self: Hearing, peer_id: PeerId, *, are_shown: bool) -> None:
        shown_ids(self, peer_id, are_shown=are_shown)
        if self._standings.is_benched(peer_id):
            tell("benched", peer_id)

    async def tell_punish(self: Penalties, peer_id: PeerId, reason: str, hop_micro: int) -> bool:
        at = time.time()
        is_punished = await punish(self, peer_id, reason, hop_micro)
        if is_punished:
            tell("slashed", peer_id, at=at, reason=reason)
        return is_punished

    Hearing.heard = tell_heard  # type: ignore[method-assign]
    Hearing.in_vain = tell_in_vain  # type: ignore[method-assign]
    Hearing._shown = tell_shown  # type: ignore[method-assign]
    Hearing._shown_ids = tell_shown_ids  # type: ignore[method-assign]
    Penalties.punish = tell_punish  # type: ignore[method-assign]


if __name__ == "__main__":
    shorten_waits()
    tell_of_audits()
    run()
