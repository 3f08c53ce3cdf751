"""How a stream over HTTP is opened, and what carries its POSTs: signed, and checked when answered.

Where a URL leads is for the rules of `web.targets`: private networks only where the operator
allows them, public ones by https, no redirects. Who answers there is for the key: an answer
that the peer did not sign is none.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlencode

import httpx
import trio

from p2p.background import background_tasks
from p2p.streams import FrameStream, frame_stream
from tessella.core.addresses import Cidr
from tessella.core.call_rules import NONCE_BYTES
from tessella.core.errors import (
    BadAddress,
    PeerSilent,
    PeerUnreachable,
    RemoteError,
    RemoteFailure,
)
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.messages import TOKENS
from tessella.core.signed_request import Request, answer_text, check_answer, sign_request
from tessella.web.byte_calls import Post, post_bytes
from tessella.web.client import open_client
from tessella.web.targets import MAX_URL_CHARS, Resolver, Target, parse_url, resolve_target
from tessella.worker.http_hops.asks import Ask, Said, read_end
from tessella.worker.http_hops.dialled import DialledStream

_LOG = logging.getLogger(__name__)

# Within a call: a read is answered after 5 s, and a body when a stage took it.
STALL_SECONDS = 15.0
# The called node closes a connection that was idle for 5 s.
KEEP_SECONDS = 4.0
# At once to one host. A stream has a read waiting there all the time, and writes beside it.
MAX_CONNECTIONS = 256
# Hosts whose connections are kept between streams.
MAX_HOSTS = 64
# To find out that a peer answers there, as long as a dial may take.
OPEN_SECONDS = 5.0
# As long as a tunnel takes to come back; a hop is given up after it by who waits for it.
PATIENCE_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class Rules:
    """Where streams may lead, and what is needed to get there."""

    allow_private: bool | tuple[Cidr, ...]
    clock: Callable[[], float] = time.time
    """Seconds since 1970."""
    patience: float = PATIENCE_SECONDS
    """Seconds for which a POST that found no way is tried again."""
    transport: httpx.AsyncBaseTransport | None = None
    """For tests; None takes the network."""
    resolver: Resolver | None = None
    callback_hosts: Collection[str] = ()
    """Hosts that tokens may go to although they are in private networks."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a peer answers a protocol over HTTP."""

    api_url: str
    """Of the peer, as it tells it; a proxy there may take a path before ours away. Without a query:
    ours would be a part of it."""
    path: str
    """What is signed."""


@dataclass(slots=True)
class _Host:
    """What leads to one host: nothing else is called over these connections."""

    client: httpx.AsyncClient
    streams: int = 0


@dataclass(frozen=True, slots=True)
class _Line:
    """What the POSTs of one stream have in common."""

    peer: PeerId
    path: str
    target: Target
    host: _Host


class HttpHops:
    """Opens streams to nodes at their URLs. Made by `open_http_hops`."""

    def __init__(self, identity: Identity, rules: Rules, nursery: trio.Nursery) -> None:
        self._identity = identity
        self._rules = rules
        self._nursery = nursery
        self._streams: set[FrameStream] = set()
        # The one used longest ago first.
        self._hosts: dict[tuple[str, str, int], _Host] = {}

    async def open(self, peer: PeerId, route: Route, protocol: str) -> FrameStream:
        """A stream of a protocol to a peer. The caller ends it.

        Raises PeerUnreachable where that peer does not answer there, another PeerGone where it
        went meanwhile, and RemoteFailure, to be tried again, where it is full.
        """
        with trio.move_on_after(OPEN_SECONDS):
            return await self._open(peer, route, protocol)
        raise PeerSilent(f"{peer} did not answer within {OPEN_SECONDS:g} s at {route.api_url!r}")

    async def _open(self, peer: PeerId, route: Route, protocol: str) -> FrameStream:
        target = await self._target(peer, route, protocol)
        host, unused = self._host_of(target)
        line = _Line(peer, route.path, target, host)
        stream = DialledStream(peer, partial(self._call, line), self._rules.patience)
        host.streams += 1
        try:
            for each in unused:
                await each.client.aclose()
            await _begin(stream)
        except BaseException:
            host.streams -= 1
            raise
        framed = frame_stream(stream, protocol, opened=True)
        self._streams.add(framed)
        self._nursery.start_soon(self._run, stream, framed, host)
        return framed

    async def _target(self, peer: PeerId, route: Route, protocol: str) -> Target:
        rules = self._rules
        try:
            allowed = self._is_called_back(route, protocol) or rules.allow_private
            return await resolve_target(
                _below(route), allowed, resolver=rules.resolver, public_https=True
            )
        except BadAddress as exc:
            raise PeerUnreachable(f"no way to {peer} over HTTP: {exc}") from exc

    def _is_called_back(self, route: Route, protocol: str) -> bool:
        hosts = self._rules.callback_hosts
        return protocol == TOKENS and bool(hosts) and parse_url(route.api_url).host in hosts

    async def _run(self, stream: DialledStream, framed: FrameStream, host: _Host) -> None:
        try:
            await stream.run()
        except Exception:  # noqa: BLE001 - a bug in one stream is not what all others pay for
            _LOG.exception("%s failed by a bug", framed)
        finally:
            self._streams.discard(framed)
            host.streams -= 1

    def end(self, stream: FrameStream) -> bool:
        """Finish a stream in order while nobody waits; False for one that was not opened here."""
        if stream not in self._streams:
            return False
        self._nursery.start_soon(stream.aclose)
        return True

    async def _call(self, line: _Line, ask: Ask, body: bytes) -> Said:
        query, nonce = ask.query(), secrets.token_bytes(NONCE_BYTES)
        url = line.target.url
        target = replace(line.target, url=replace(url, path=f"{url.path}?{urlencode(query)}"))
        asked = Request("POST", line.path, query, body, audience=line.peer)
        headers = sign_request(asked, self._identity, self._rules.clock(), nonce)
        answer = await post_bytes(line.host.client, Post(target, headers, body, STALL_SECONDS))
        said = Said(answer.body, read_end(answer.headers))
        text = answer_text(self._identity.peer_id, nonce, said.word, said.data)
        check_answer(line.peer, text, answer.headers)
        return said

    def _host_of(self, target: Target) -> tuple[_Host, list[_Host]]:
        """The host of a target, and those that are one too many, for the caller to close."""
        key = (target.url.scheme, target.url.host, target.url.port)
        host = self._hosts.pop(key, None)
        if host is None:
            client = open_client(
                self._rules.transport, keep_seconds=KEEP_SECONDS, connections=MAX_CONNECTIONS
            )
            host = _Host(client)
        self._hosts[key] = host
        idle = [key for key, each in self._hosts.items() if not each.streams and each is not host]
        spare = idle[: max(0, len(self._hosts) - MAX_HOSTS)]
        return host, [self._hosts.pop(key) for key in spare]

    async def aclose(self) -> None:
        """Close every connection."""
        with trio.CancelScope(shield=True):
            while self._hosts:
                await self._hosts.popitem()[1].client.aclose()


def _below(route: Route) -> str:
    """The URL of a route. Raises BadAddress."""
    if "?" in route.api_url or "#" in route.api_url:
        raise BadAddress(f"not a URL that is called from here: {route.api_url[:MAX_URL_CHARS]!r}")
    return route.api_url.rstrip("/") + route.path


async def _begin(stream: DialledStream) -> None:
    try:
        await stream.open()
    except (RemoteError, RemoteFailure) as exc:
        if isinstance(exc, RemoteFailure) and exc.retry:
            raise
        raise PeerUnreachable(f"{stream.peer_id} is not reached over HTTP: {exc}") from exc


@asynccontextmanager
async def open_http_hops(identity: Identity, rules: Rules) -> AsyncIterator[HttpHops]:
    """What opens streams to nodes over HTTP, in the name of `identity`, until the context ends.

    Whoever uses a stream then finds it reset.
    """
    async with AsyncExitStack() as last, background_tasks() as nursery:
        hops = HttpHops(identity, rules, nursery)
        last.push_async_callback(hops.aclose)
        yield hops
