"""What the streams of a node share, and what becomes of a peer that fails us on one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from tessella.core.errors import PeerGone, RemoteError, RemoteFailure, TessellaError
from tessella.core.ids import PeerId
from tessella.worker.audits.canary import BendOf, truth
from tessella.worker.counters import Counters
from tessella.worker.directory import Directory
from tessella.worker.grants import Grants
from tessella.worker.proofs.billing import Billing
from tessella.worker.tickets import Tickets

Blame = Callable[[PeerId, TessellaError], None]


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What every conversation of a node shares."""

    directory: Directory
    counters: Counters
    hop_timeout: float
    blame: Blame
    """Called with a peer that failed us, and how."""
    tickets: Tickets = field(default_factory=Tickets)
    grants: Grants = field(default_factory=lambda: Grants(Tickets()))
    billing: Billing = field(default_factory=Billing)
    """By default there is no musivum, and nobody pays."""
    bend_of: BendOf = truth
    """What becomes of the output of a session: nothing, but at a canary."""

    def trust(self, peer: PeerId) -> Trust:
        """Trust in a peer for one conversation that we opened."""
        return Trust(peer, self.blame)


class Trust:
    """A context around whatever one peer may break, entered as often as it is used.

    A peer that goes away in it, or breaks a rule, is blamed: once, however many tasks see it. The
    first error passes through. The second leaves as a RemoteFailure, because whoever asked us is
    not the one who broke the rule.
    """

    def __init__(self, peer: PeerId, blame: Blame) -> None:
        self._peer = peer
        self._blame = blame
        self._lost = False

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, PeerGone | RemoteError):
            return
        if not self._lost:
            self._lost = True
            self._blame(self._peer, error)
        if isinstance(error, RemoteError):
            raise RemoteFailure(error.code, f"{self._peer}: {error}", retry=True) from error
