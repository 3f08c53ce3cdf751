"""The other end went away, or says that it failed."""

from __future__ import annotations

from collections.abc import Iterator

from tessella.core.errors.full import Busy
from tessella.core.errors.inputs import BadRequest, UnknownModel
from tessella.core.errors.roots import TessellaError


class PeerGone(TessellaError):
    """The other end went away. Retry through another peer."""

    code = "peer_gone"
    status = 502
    retry = True


class PeerClosed(PeerGone):
    """The peer finished its side, or its connection ended."""

    code = "peer_closed"


class PeerReset(PeerGone):
    """The peer, or we, gave the stream up."""

    code = "peer_reset"


class PeerSilent(PeerGone):
    """The peer is connected and has stopped making progress."""

    code = "peer_silent"


class PeerUnreachable(PeerGone):
    """No address of the peer answered."""

    code = "peer_unreachable"


class RemoteFailure(TessellaError):
    """An error that a peer reported. `code` is the peer's; its text is data, not ours.

    `status` is that of the code where it says that the request is at fault, or that somebody is
    full: this is true whichever node found it. All else is a peer that failed.
    """

    status = 502

    def __init__(self, code: str, text: str, *, retry: bool) -> None:
        super().__init__(text or code)
        self.code = code
        self.retry = retry
        self.status = _status_of(code)


def _status_of(code: str) -> int:
    passed_on = (kind for root in (BadRequest, UnknownModel, Busy) for kind in _tree(root))
    found = (kind.status for kind in passed_on if kind.code == code)
    return next(found, RemoteFailure.status)


def _tree(root: type[TessellaError]) -> Iterator[type[TessellaError]]:
    yield root
    for child in root.__subclasses__():
        yield from _tree(child)
