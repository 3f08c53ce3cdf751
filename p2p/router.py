"""Which handler serves which protocol, for how many streams at a time, and how its errors end.

Both hosts hand every inbound stream to `Router.answer`, which never raises: a handler that
raises must cost its own stream and nothing else (libp2p would take the whole node down).

    the handler returns             the stream is finished in order
    a TessellaError                 Fail.of(error), then finished
      a RemoteError among them      Fail, then reset: the peer broke a rule
    anything else                   a bug of ours: logged, Fail("internal_error"), reset

A handler of bytes has no frame to say Fail in: whatever it raises resets its stream.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio

from p2p.peers import BytesHandler, Handler
from p2p.streams import CLOSE_TIMEOUT, ByteStream, FrameStream, frame_stream
from tessella.core.errors import (
    LocalError,
    PeerGone,
    RemoteError,
    TessellaError,
    TooManySessions,
)
from tessella.core.exits import leaves
from tessella.core.ids import PeerId
from tessella.core.messages import HOP, TOKENS, Fail

logger = logging.getLogger(__name__)

# Streams of one peer over all protocols, but for those that `max_sessions` bounds.
MAX_PER_PEER = 64
_BOUNDED_BY_SESSIONS = frozenset({HOP, TOKENS})
# A peer that does not read what went wrong is not waited for.
FAIL_TIMEOUT = 5.0


@dataclass(slots=True)
class _Route:
    handler: Handler | None
    bytes_handler: BytesHandler | None
    streams: int
    per_peer: int
    open: Counter[PeerId] = field(default_factory=Counter)

    def refusal(self, peer: PeerId) -> TooManySessions | None:
        if self.open[peer] >= self.per_peer:
            return TooManySessions(f"{self.per_peer} streams of one peer are open here")
        if self.open.total() >= self.streams:
            return TooManySessions(f"all {self.streams} streams are in use here")
        return None

    @contextmanager
    def counted(self, peer: PeerId) -> Iterator[None]:
        self.open[peer] += 1
        try:
            yield
        finally:
            self.open[peer] -= 1
            if not self.open[peer]:
                del self.open[peer]


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
        self._add(protocol, _Route(handler, None, streams, per_peer))

    def serve_bytes(
        self, protocol: str, handler: BytesHandler, *, streams: int, per_peer: int
    ) -> None:
        """Answer a protocol that is not of our frames. Raises LocalError if it is served."""
        self._add(protocol, _Route(None, handler, streams, per_peer))

    def _add(self, protocol: str, route: _Route) -> None:
        if protocol in self._routes:
            raise LocalError(f"{protocol} is served twice")
        self._routes[protocol] = route

    def _refusal(self, route: _Route, protocol: str, peer: PeerId) -> TooManySessions | None:
        if protocol not in _BOUNDED_BY_SESSIONS and self._open_of(peer) >= MAX_PER_PEER:
            return TooManySessions(f"{MAX_PER_PEER} streams of one peer are open here")
        return route.refusal(peer)

    def _open_of(self, peer: PeerId) -> int:
        routes = self._routes.items()
        return sum(each.open[peer] for name, each in routes if name not in _BOUNDED_BY_SESSIONS)

    async def accept(self, protocol: str, stream: ByteStream) -> None:
        """Serve one inbound stream of a protocol to its end. Raises only a cancellation."""
        route = self._routes[protocol]
        if route.bytes_handler is None:
            await self.answer(frame_stream(stream, protocol, opened=False))
        elif self._refusal(route, protocol, stream.peer_id) is not None:
            await stream.reset()
        else:
            with route.counted(stream.peer_id):
                await _handle_bytes(route.bytes_handler, stream, protocol)

    async def answer(self, stream: FrameStream) -> None:
        """`accept`, for one that is a stream of frames already."""
        route = self._routes[stream.protocol]
        refusal = self._refusal(route, stream.protocol, stream.peer_id)
        if refusal is not None or route.handler is None:
            await _end_with(stream, refusal or LocalError(f"no frames on {stream.protocol}"))
            return
        with route.counted(stream.peer_id):
            await handle(route.handler, stream)


async def handle(handler: Handler, stream: FrameStream) -> None:
    """Serve one stream of frames to its end, wherever it came from; raises only a cancellation."""
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


async def _handle_bytes(handler: BytesHandler, stream: ByteStream, protocol: str) -> None:
    named = f"{protocol}, {stream.peer_id}"
    finished = False
    try:
        await handler(stream)
        with trio.move_on_after(CLOSE_TIMEOUT):
            await stream.aclose()
            finished = True
    except Exception as exc:  # noqa: BLE001 - whatever a handler raises ends its stream only
        _reason(exc, named)
    except BaseException as exc:  # noqa: BLE001 - a cancellation, maybe beside errors: we leave
        _log_bugs(exc, named)
        raise _only_cancelled(exc) from None
    finally:
        if not finished:
            with trio.CancelScope(shield=True):
                await stream.reset()


def _log_bugs(raised: BaseException, stream: FrameStream | str) -> None:
    bugs = [leaf for leaf in leaves(raised) if isinstance(leaf, Exception)]
    if any(not isinstance(leaf, TessellaError) or isinstance(leaf, LocalError) for leaf in bugs):
        logger.error("a handler failed while it was cancelled: %s", stream, exc_info=raised)


def _only_cancelled(raised: BaseException) -> BaseException:
    """What the host's nursery may see: a stream's own errors beside it would end the host."""
    if not isinstance(raised, BaseExceptionGroup):
        return raised
    _, rest = raised.split(Exception)
    return rest or raised


def _reason(raised: Exception, stream: FrameStream | str) -> TessellaError:
    """What the peer is told: the first error, if all that was raised is of our tree."""
    found = list(leaves(raised))
    ours = [leaf for leaf in found if isinstance(leaf, TessellaError)]
    if len(ours) == len(found) and not isinstance(ours[0], LocalError):
        logger.info("stream ended: %s: %s: %s", stream, ours[0].code, ours[0])
        return ours[0]
    logger.error("a handler failed: %s", stream, exc_info=raised)
    return ours[0] if ours and len(ours) == len(found) else LocalError("a handler failed")


async def _end_with(stream: FrameStream, error: TessellaError) -> None:
    try:
        await stream.send(Fail.of(error), timeout=FAIL_TIMEOUT)
    except (PeerGone, LocalError):
        # The peer is gone, or the handler ended the stream itself: there is nobody to tell.
        await stream.reset()
        return
    if isinstance(error, RemoteError | LocalError):
        await stream.reset()
    else:
        await stream.aclose()
