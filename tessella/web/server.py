"""An ASGI app on its sockets, inside the caller's nursery: no signals, no processes, no logs."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import trio
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from starlette.types import ASGIApp

from tessella.core.addresses import LOOPBACK, Cidr, Ip, address_of, within
from tessella.core.errors import Busy
from tessella.web.connections import Connection, Ends, PatientStream, hypercorn_settings
from tessella.web.limits import read_client
from tessella.web.listening import bound_url, close_listeners, open_listeners

_LOG = logging.getLogger(__name__)

# The stubs that libp2p brings along are older than trio's own `TaskStatus`.
Started: TypeAlias = "trio.TaskStatus[tuple[str, ...]]"  # type: ignore[name-defined, unused-ignore]
_Kept: TypeAlias = "trio.TaskStatus[trio.Nursery]"  # type: ignore[name-defined, unused-ignore]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeLimits:
    """What clients may hold and how long, in connections and seconds."""

    connections: int = 512
    """In all. One more is closed as soon as it is accepted. Each may hold about 300 KiB, of a body
    that the app does not read."""
    per_address: int = 16
    """Of one IPv4 address or IPv6 /64: browsers open 6."""
    exempt: tuple[Cidr, ...] = LOOPBACK
    """Networks that only the limit for all together holds for."""
    idle_seconds: float = 5.0
    """Until the headers of a request are complete, from the accept or from the last answer."""
    send_seconds: float = 30.0
    """Until a client has taken what it is sent."""
    grace_seconds: float = 2.0
    """For answers under way when the serving ends."""


DEFAULT_LIMITS = ServeLimits()


async def serve_http(
    app: ASGIApp,
    listen: Sequence[str],
    *,
    limits: ServeLimits = DEFAULT_LIMITS,
    task_status: Started = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled. Started with the bound addresses, as `http://host:port`.

    Ends: cancelled, it accepts nobody more, closes idle connections, lets answers under way be
    finished for `limits.grace_seconds` and closes what is left.
    Errors: PortInUse or BadAddress that names what cannot be listened on, before it is started. A
    bug of the app is logged and ends its own connection.
    Lifespan: the app is not told of start and stop; whoever serves it owns what it uses.
    """
    async with bound(listen) as listeners:
        await serve_bound(app, listeners, limits=limits, task_status=task_status)


@asynccontextmanager
async def bound(listen: Sequence[str]) -> AsyncIterator[list[trio.SocketListener]]:
    """Listeners, for an app that has to know where it is before it is there; closed at the end.

    Who connects before it is served waits. Raises PortInUse or BadAddress as `serve_http`.
    """
    listeners: list[trio.SocketListener] = []
    try:
        for text in listen:
            listeners += await open_listeners(text)
        yield listeners
    finally:
        await close_listeners(listeners)


async def serve_bound(
    app: ASGIApp,
    listeners: list[trio.SocketListener],
    *,
    limits: ServeLimits = DEFAULT_LIMITS,
    task_status: Started = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve on listeners of the caller's until cancelled, as `serve_http`."""
    clients = _Clients(app, limits)
    async with clients.kept() as handlers:
        task_status.started(tuple(bound_url(each) for each in listeners))
        await trio.serve_listeners(clients.serve, listeners, handler_nursery=handlers)


@dataclass(slots=True)
class _Clients:
    """The connections that are open."""

    app: ASGIApp
    limits: ServeLimits
    settings: Config = field(init=False)
    context: WorkerContext = field(default_factory=partial(WorkerContext, None))
    _open: set[PatientStream] = field(default_factory=set)
    _of: dict[Cidr, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.settings = hypercorn_settings(self.limits.idle_seconds)

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection that was just accepted, or turn it away."""
        try:
            ends = _ends(stream)
            patient = PatientStream(stream, self.limits.send_seconds)
            with self._place(patient, read_client(ends.client[0])):
                await Connection(self.app, self.settings, self.context, patient, ends).run()
        except (OSError, Busy) as exc:
            _LOG.debug("a connection ended: %s", exc)
        except Exception:  # noqa: BLE001  what one client provokes is not what all others pay for
            _LOG.exception("a connection failed by a bug")

    @contextmanager
    def _place(self, stream: PatientStream, ip: Ip) -> Iterator[None]:
        """A place for a connection, given back at the end. Raises Busy."""
        source = address_of(ip)
        here = self._of.get(source, 0)
        if len(self._open) >= self.limits.connections:
            raise Busy(f"refused {ip}: all {self.limits.connections} connections are in use")
        if here >= self.limits.per_address and not within(ip, self.limits.exempt):
            raise Busy(f"refused {ip}: {self.limits.per_address} connections of it are open")
        self._of[source] = here + 1
        self._open.add(stream)
        try:
            yield
        finally:
            self._open.remove(stream)
            self._of[source] -= 1
            if not self._of[source]:
                del self._of[source]

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[trio.Nursery]:
        """A nursery for connections that outlives a cancellation by the grace at most."""
        async with trio.open_nursery() as around:
            ended = trio.Event()
            handlers = await around.start(self._keep, ended)
            try:
                yield handlers
            finally:
                await self.context.terminated.set()
                ended.set()

    async def _keep(self, ended: trio.Event, *, task_status: _Kept) -> None:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as closing:
                async with trio.open_nursery() as handlers:
                    task_status.started(handlers)
                    await ended.wait()
                    closing.start_soon(self._break_off_late, handlers.cancel_scope)
                closing.cancel_scope.cancel()

    async def _break_off_late(self, handlers: trio.CancelScope) -> None:
        await trio.sleep(self.limits.grace_seconds)
        # Hypercorn shields its sends: only a closed stream ends one.
        for stream in tuple(self._open):
            await stream.break_off()
        handlers.cancel()


def _ends(stream: trio.SocketStream) -> Ends:
    """Raises OSError where the client is gone already."""
    client, ours = stream.socket.getpeername(), stream.socket.getsockname()
    return Ends((str(read_client(client[0])), client[1]), (ours[0], ours[1]))
