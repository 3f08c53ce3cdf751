"""One client's connection: Hypercorn's HTTP/1.1, and what it leaves to whoever uses it.

Hypercorn reads requests, starts the app for each and writes its answers. What it lacks is here:

    a client that does not read      a send that is not taken in time ends the connection
    an app that does not notice      what it sends to a client that left raises
    a body that the app did not read is taken and dropped for a moment, so that the answer is
                                     not lost with it, and nothing waits for its place forever
    a request behind another         nothing reads while it waits; when the app is done and the
                                     client is gone, the connection ends instead of waiting on
    an offer of h2c or a WebSocket   is not taken, as HTTP allows: a request is a request

HTTP/2 is not offered: its streams, windows and header tables are limits of their own, and the
calls of this program are few and long. Where it is wanted, a proxy that ends TLS has it.

There is no timeout for reading as such. Headers have to come within `idle_seconds`, and a body at
the pace of `tessella.web.bodies`; after that the client has nothing to send while it is answered,
however long that takes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import chain

import h11
import trio
from hypercorn.config import Config
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tessella.core.exits import leaves
from tessella.web.errors import HttpRefusal, error_answer

LINGER_SECONDS = 2.0
LINGER_BYTES = 1 << 20
"""What is still read of a body after its answer: a client that sends on may not have seen it."""
HEADER_BYTES = 16 * 1024
QUEUED_PIECES = 2
"""Pieces of a body that wait for the app, 64 KiB each."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ends:
    """The two ends of a connection, host and port each."""

    client: tuple[str, int]
    ours: tuple[str, int]


def hypercorn_settings(idle_seconds: float) -> Config:
    """Hypercorn's own settings: quiet, nameless, bounded."""
    config = Config()
    config.accesslog = None
    config.errorlog = _LOG
    config.include_server_header = False
    config.keep_alive_timeout = idle_seconds
    config.h11_max_incomplete_size = HEADER_BYTES
    config.max_app_queue_size = QUEUED_PIECES
    return config


class ClientGone(OSError):
    """The app sends to a client that left: what ASGI has a server raise, so that it stops."""


class PatientStream:
    """A stream that does not wait forever to be read."""

    def __init__(self, stream: trio.abc.HalfCloseableStream, send_seconds: float) -> None:
        self._stream = stream
        self._send_seconds = send_seconds
        self.closed = False

    async def receive_some(self, max_bytes: int) -> bytes | bytearray:
        """As a trio stream has it."""
        return await self._stream.receive_some(max_bytes)

    async def send_all(self, data: bytes) -> None:
        """Send, or close the stream when it is broken or not read: reading and the app notice.

        Raising would have Hypercorn wait, inside the app's own send, for the app to receive.
        """
        if self.closed:
            return
        try:
            with trio.fail_after(self._send_seconds):
                await self._stream.send_all(data)
        except (trio.TooSlowError, trio.BrokenResourceError):
            await self.break_off()

    async def send_eof(self) -> None:
        """As a trio stream has it."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """As a trio stream has it."""
        self.closed = True
        await self._stream.aclose()

    async def break_off(self) -> None:
        """Close at once: whoever reads or writes has a ClosedResourceError."""
        self.closed = True
        await trio.aclose_forcefully(self._stream)


class Connection(TCPServer):
    """One client's connection, from accept to close. Errors of the app end it and are logged."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Config,
        context: WorkerContext,
        stream: PatientStream,
        ends: Ends,
    ) -> None:
        # Types as narrow as Hypercorn's own use of what it is given.
        super().__init__(self._answer, settings, context, ConnectionState({}), stream)  # type: ignore[arg-type]
        self._asgi = app
        self._patient = stream
        self._ends = ends
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        """Serve until either side closes; the stream is closed then."""
        try:
            with self._scope:
                async with TaskGroup() as tasks:
                    self._task_group = tasks
                    self.protocol = self._http1(tasks)  # type: ignore[assignment]  # no wrapper
                    await self.idle_task.restart(tasks, self._idle_timeout)
                    await self._read_data()
                    # Nobody is left to be idle, and its place is wanted.
                    await self.idle_task.stop()
        finally:
            await self._patient.break_off()

    def _http1(self, tasks: TaskGroup) -> H11Protocol:
        return _Http1(
            self.app,
            self.config,
            self.context,
            tasks,
            ConnectionState(self.state),
            False,
            self._ends.client,
            self._ends.ours,
            self.protocol_send,
        )

    async def _answer(self, scope: Scope, receive: Receive, send: Send, *_threads: object) -> None:
        exchange = _Exchange(receive, send, self._patient)
        try:
            await self._asgi(scope, exchange.receive, exchange.send)
        except Exception as exc:  # noqa: BLE001  a bug in the app ends its connection alone
            if not all(isinstance(each, ClientGone) for each in leaves(exc)):
                _LOG.exception("%s %s was not answered", scope["method"], scope["path"])
        # Hypercorn would wait here for a place in the app's queue, or for the next request's turn.
        if not exchange.ended:
            self._scope.cancel()


class _Exchange:
    """One request and its answer, between Hypercorn and the app."""

    def __init__(self, receive: Receive, send: Send, stream: PatientStream) -> None:
        self._receive = receive
        self._send = send
        self._stream = stream
        self._unread = True
        self.ended = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._unread = bool(message.get("more_body", False))
        return message

    async def send(self, message: Message) -> None:
        if self._stream.closed:
            raise ClientGone
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if last and self._unread:
            await self._send({**message, "more_body": True})
            await self._linger()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        if not last:
            await self._send(message)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._take_the_rest)
            await self._send(message)
            nursery.cancel_scope.cancel()
        self.ended = True

    async def _linger(self) -> None:
        taken = 0
        with trio.move_on_after(LINGER_SECONDS):
            while self._unread and taken < LINGER_BYTES:
                taken += len((await self.receive()).get("body", b""))

    async def _take_the_rest(self) -> None:
        # Hypercorn puts a last message into the queue, behind what nobody took out of it.
        while (await self._receive())["type"] != "http.disconnect":
            pass


class _Http1(H11Protocol):
    """Hypercorn's HTTP/1.1 that stays it, and whose own errors have the body of all others."""

    async def _check_protocol(self, event: h11.Request) -> None:
        """Where Hypercorn changes to HTTP/2."""

    async def _create_stream(self, request: h11.Request) -> None:
        kept = [(name, value) for name, value in request.headers if name != b"upgrade"]
        await super()._create_stream(
            h11.Request(
                method=request.method,
                target=request.target,
                headers=kept,
                http_version=request.http_version,
            )
        )

    async def _send_error_response(self, status_code: int) -> None:
        code = "headers_too_large" if status_code == 431 else "bad_request"
        refusal = HttpRefusal(status_code, code, "this is no HTTP request of a bounded size")
        answer = error_answer(refusal, now=0.0, headers={"Connection": "close"})
        headers = chain(answer.raw_headers, self.config.response_headers("h11"))
        await self._send_h11_event(h11.Response(status_code=status_code, headers=list(headers)))
        await self._send_h11_event(h11.Data(data=bytes(answer.body)))
        await self._send_h11_event(h11.EndOfMessage())
