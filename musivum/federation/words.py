"""How each partner stands, as JSON."""

from __future__ import annotations

from typing import Literal

from musivum.bodies.fields import Body, PeerName
from musivum.bodies.ledger import HeadBody
from musivum.federation.reading import Seen
from musivum.pages.ledger_words import head_body


class PartnerBody(Body):
    """A musivum whose credits count here."""

    peer_id: str
    url: str
    state: Literal["following", "away", "refused"]
    """`away`: its last page did not come, or could not be taken. `refused`: it told two histories,
    and nothing is taken from it until the operator forgets it."""
    size: int
    """Entries of its ledger that are here."""
    behind: int
    """Entries that it has more, by its latest head."""
    pulled_at: float | None
    """When a page was last taken since the start, be it of nothing: seconds since 1970."""
    error: str
    """Why it is not followed; empty while it is."""
    slashes: int
    """Penalties in its ledger. They move accounts here, and bar nobody."""
    reversals: int
    """Payments that were taken back here because it had paid the same proofs."""
    evidence: list[HeadBody]
    """Of two histories: what it signed."""


class FederationBody(Body):
    """Whom this musivum lists, and how it stands with each."""

    peer_id: str
    """This musivum."""
    pull_seconds: float
    partners: list[PartnerBody]


class ForgetBody(Body):
    """A partner that is to be read from its first entry on, as if it had never been here."""

    peer_id: PeerName


class ForgottenBody(Body):
    """What is gone."""

    peer_id: str
    entries: int


def evidence_body(seen: Seen) -> HeadBody:
    """A head, readable, and as it was signed."""
    return head_body(seen.head, *seen.signed)
