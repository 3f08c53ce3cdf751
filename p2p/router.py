"""Which handler serves which protocol, for how many streams at a time, and how its errors end.

Both hosts hand every inbound stream to `Router.answer`, which never raises: a handler that
raises must cost its own stream and nothing else (libp2p would take the whole node down).

    the handler returns             the stream is finished in order
    a TessellaError                 Fail(code, told(), retry), then finished
      a RemoteError among them      Fail, then reset: the peer broke a rule
    anything else                   a bug of ours: logged, Fail("internal_error"), reset
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

from p2p.peers import Handler
from p2p.streams import FrameStream
from tessella.core.errors import (
    LocalError,
    PeerGone,
    RemoteError,
    TessellaError,
    TooManySessions,
)
from tessella.core.ids import PeerId
from tessella.core.messages import Fail

logger = logging.getLogger(__name__)

# A peer that does not read what went wrong is not waited for.
FAIL_TIMEOUT = 5.0


@dataclass(slots=True)
class _Route:
    handler: Handler
    streams: int
    per_peer: int
    open: Counter[PeerId] = field(default_factory=Counter)

    def refusal(self, peer: PeerId) -> TooManySessions | None:
        if self.open[peer] >= self.per_peer:
            return TooManySessions(f"{self.per_peer} streams of one peer are open here")
        if self.open.total() >= self.streams:
            return TooManySessions(f"all {self.streams} streams are in use here")
        return None


class Router:
    """The protocols of one host."""

    def __init__(self) -> None:
        self._routes: dict[str, _Route] = {}

    @property
    def protocols(self) -> tuple[str, ...]:
        """What is served."""
        return tuple(self._routes)

    def serve(self, protocol: str, handler: Handler, *, streams: int, per_peer: int) -> None:
        """Answer a protocol; see `p2p.peers.Host.serve`. Raises LocalError if it is served."""
        if protocol in self._routes:
            raise LocalError(f"{protocol} is served twice")
        self._routes[protocol] = _Route(handler, streams, per_peer)

    async def answer(self, stream: FrameStream) -> None:
        """Serve one inbound stream to its end. Raises nothing but a cancellation."""
        route = self._routes[stream.protocol]
        refusal = route.refusal(stream.peer_id)
        if refusal is not None:
            await _end_with(stream, refusal)
            return
        route.open[stream.peer_id] += 1
        try:
            await _handle(route.handler, stream)
        finally:
            route.open[stream.peer_id] -= 1
            if not route.open[stream.peer_id]:
                del route.open[stream.peer_id]


async def _handle(handler: Handler, stream: FrameStream) -> None:
    try:
        await handler(stream)
    except Exception as exc:  # noqa: BLE001 - whatever a handler raises ends its stream only
        await _end_with(stream, _reason(exc, stream))
    except BaseException as exc:  # noqa: BLE001 - a cancellation, maybe beside errors: we leave
        await stream.reset()
        _log_bugs(exc, stream)
        raise _only_cancelled(exc) from None
    else:
        await stream.aclose()


def _log_bugs(raised: BaseException, stream: FrameStream) -> None:
    bugs = [leaf for leaf in _leaves(raised) if isinstance(leaf, Exception)]
    if any(not isinstance(leaf, TessellaError) or isinstance(leaf, LocalError) for leaf in bugs):
        logger.error("a handler failed while it was cancelled: %s", stream, exc_info=raised)


def _only_cancelled(raised: BaseException) -> BaseException:
    """What the host's nursery may see: a stream's own errors beside it would end the host."""
    if not isinstance(raised, BaseExceptionGroup):
        return raised
    _, rest = raised.split(Exception)
    return rest or raised


def _reason(raised: Exception, stream: FrameStream) -> TessellaError:
    """What the peer is told: the first error, if all that was raised is of our tree."""
    leaves = list(_leaves(raised))
    ours = [leaf for leaf in leaves if isinstance(leaf, TessellaError)]
    if len(ours) == len(leaves) and not isinstance(ours[0], LocalError):
        logger.info("stream ended: %s: %s: %s", stream, ours[0].code, ours[0])
        return ours[0]
    logger.error("a handler failed: %s", stream, exc_info=raised)
    return ours[0] if ours and len(ours) == len(leaves) else LocalError("a handler failed")


def _leaves(raised: BaseException) -> list[BaseException]:
    if isinstance(raised, BaseExceptionGroup):
        return [leaf for part in raised.exceptions for leaf in _leaves(part)]
    return [raised]


async def _end_with(stream: FrameStream, error: TessellaError) -> None:
    try:
        await stream.send(Fail(error.code, error.told(), error.retry), timeout=FAIL_TIMEOUT)
    except (PeerGone, LocalError):
        # The peer is gone, or the handler ended the stream itself: there is nobody to tell.
        await stream.reset()
        return
    if isinstance(error, RemoteError | LocalError):
        await stream.reset()
    else:
        await stream.aclose()
