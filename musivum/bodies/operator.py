"""What an operator asks and is answered, as JSON."""

from __future__ import annotations

from pydantic import Field

from musivum.bodies.fields import Body, Hash, Name, PeerName, Span
from musivum.bodies.mesh import FileBody
from tessella.core.manifest import MAX_FILES


class ReputationArguments(Body):
    """One peer, or all."""

    peer_id: PeerName | None = None
    all: bool = False


class PublishBody(Body):
    """A manifest to publish. The contract follows from the shape, and may be left out."""

    model_id: Name
    contract: Hash | None = None
    shape: dict[str, object]
    files: list[FileBody] = Field([], max_length=MAX_FILES)


class Published(Body):
    """A manifest was published."""

    model_id: str
    contract: str


class MoveBody(Body):
    """A node that was told another range."""

    peer_id: str
    old: Span
    new: Span
    reason: str


class Rebalanced(Body):
    """What was begun; the next moves follow by themselves."""

    moves: list[MoveBody]


class ReputationBody(Body):
    """What became of an identity."""

    peer_id: str
    score: float
    """Above 0 to 1."""
    joins: int
    offline: int
    reports_made: int
    reports_confirmed: int
    accused: int
    accused_confirmed: int
    audits_passed: float
    """What audits found fades: half of it in a month. As the next two."""
    audits_rejected: float
    slashes: float
