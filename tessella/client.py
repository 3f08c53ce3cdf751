"""A client of the mesh: it finds a node, asks, and reads the answer as it comes. No torch needed.

async with open_host(Identity(os.urandom(32)), listen=[]) as host:
    rows = await ask_peers(host, musivum)
    async for event in complete(host, choose_entry(rows), request):
        ...
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from p2p.dht import DhtMode, DhtSettings, open_dht
from p2p.peers import Host
from p2p.streams import FrameStream
from tessella.core.addresses import PeerAddress
from tessella.core.call_rules import NONCE_BYTES
from tessella.core.calls import sign_call
from tessella.core.completions import CompletionRequest
from tessella.core.errors import (
    BadFrame,
    OutOfTurn,
    PeerClosed,
    PeerReset,
    PeerUnreachable,
    RemoteFailure,
)
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.messages import (
    COMPLETE,
    LEDGER,
    STATUS,
    TRACKER,
    AskGrant,
    AskPeers,
    AskStatus,
    Begun,
    Complete,
    Delta,
    Done,
    Fail,
    Granted,
    Message,
    Peers,
    Progress,
    Status,
    Ticket,
)
from tessella.core.peers import PeerRow, decode_rows
from tessella.core.records import to_row
from tessella.core.tickets import check_presenter, open_ticket

CONNECT_TIMEOUT = 5.0
ANSWER_TIMEOUT = 10.0
# Several bootstraps are tried at a time; one that is there answers within a second.
JOIN_SECONDS = 10.0
# The entry says something every second, be it only how far it is. Before the first word it
# tokenises, finds a chain and connects to it, and each of those has a shorter limit.
WORD_TIMEOUT = 30.0

Event = Begun | Progress | Delta | Done


@dataclass(frozen=True, slots=True)
class Grant:
    """A ticket for one request of ours, and where its entry is."""

    ticket: Ticket
    payload: bytes
    signature: bytes
    entry: PeerAddress
    api_url: str
    """Where the entry answers over HTTP; empty if it does not."""


async def ask_peers(host: Host, musivum: PeerAddress, model: str = "") -> list[PeerRow]:
    """The nodes of a model, or of all, as a musivum lists them. Raises PeerGone, RemoteFailure."""
    async with _stream(host, musivum, TRACKER) as stream:
        await stream.send(AskPeers(ModelId(model)))
        answer = _not_fail(await stream.receive(ANSWER_TIMEOUT))
    if not isinstance(answer, Peers):
        raise OutOfTurn(f"{type(answer).__name__} in place of a list of peers")
    return decode_rows(answer.rows)


async def ask_grant(
    host: Host,
    identity: Identity,
    musivum: PeerAddress,
    asked: AskGrant,
    *,
    clock: Callable[[], float] = time.time,
) -> Grant:
    """A ticket of a musivum for a request that `identity` is about to make, which is the host's.

    `clock` gives seconds since 1970. Raises PeerGone, RemoteFailure with musivum's refusal, and
    RemoteError for a ticket that is none, or not ours.
    """
    async with _stream(host, musivum, LEDGER) as stream:
        nonce = secrets.token_bytes(NONCE_BYTES)
        await stream.send(sign_call(asked, identity, clock(), nonce))
        answer = _not_fail(await stream.receive(ANSWER_TIMEOUT))
    if not isinstance(answer, Granted):
        raise OutOfTurn(f"{type(answer).__name__} in place of a ticket")
    ticket = open_ticket(answer.ticket, answer.signature, (musivum.peer_id,))
    check_presenter(ticket, identity.peer_id)
    entry = PeerAddress(ticket.chain[0].peer_id, answer.addrs)
    return Grant(ticket, answer.ticket, answer.signature, entry, answer.api_url)


async def ask_swarm(
    host: Host,
    bootstrap: Sequence[PeerAddress],
    model: str = "",
    *,
    clock: Callable[[], float] = time.time,
) -> list[PeerRow]:
    """The nodes of a model, or of all, as the swarm knows them. Raises PeerUnreachable.

    Takes part as a client for as long as it asks: nobody is told of us. `clock` gives seconds
    since 1970, by which records end.
    """
    settings = DhtSettings(mode=DhtMode.CLIENT, bootstrap=tuple(bootstrap))
    async with open_dht(host, settings=settings, clock=clock) as dht:
        if not await dht.joined(JOIN_SECONDS):
            tried = ", ".join(peer.peer_id for peer in bootstrap)
            raise PeerUnreachable(f"nobody of the swarm answers: tried {tried}")
        return [to_row(record) for record in await dht.find_nodes(model)]


async def ask_status(host: Host, peer: PeerAddress) -> dict[str, Any]:
    """The status document of a node or a musivum. Raises PeerGone, RemoteError."""
    async with _stream(host, peer, STATUS) as stream:
        await stream.send(AskStatus())
        answer = _not_fail(await stream.receive(ANSWER_TIMEOUT))
    if not isinstance(answer, Status):
        raise OutOfTurn(f"{type(answer).__name__} in place of a status document")
    try:
        document = json.loads(answer.document)
    except (ValueError, RecursionError):
        raise BadFrame("a status document that is not JSON") from None
    if not isinstance(document, dict):
        raise BadFrame("a status document that is not an object")
    return document


async def complete(
    host: Host, peer: PeerAddress, request: CompletionRequest, grant: Grant | None = None
) -> AsyncIterator[Event]:
    """Begun, a Delta a token, Done, and Progress in between. Closing the iterator cancels.

    A `grant` is for this request, of the key of the host, and `peer` is its entry. Raises
    RemoteFailure with the node's code, PeerGone if it went away.
    """
    async with _stream(host, peer, COMPLETE) as stream:
        # Where we were refused already, the reason is there to be read.
        with suppress(PeerClosed, PeerReset):
            await stream.send(_brought(request, grant))
        while True:
            event = _not_fail(await stream.receive(WORD_TIMEOUT))
            if not isinstance(event, Event):
                raise OutOfTurn(f"{type(event).__name__} in an answer")
            yield event
            if isinstance(event, Done):
                return


def _brought(request: CompletionRequest, grant: Grant | None) -> Complete:
    if grant is None:
        return Complete(request.encode())
    return Complete(request.encode(), grant.payload, grant.signature)


@asynccontextmanager
async def _stream(host: Host, peer: PeerAddress, protocol: str) -> AsyncIterator[FrameStream]:
    await host.connect(peer, timeout=CONNECT_TIMEOUT)
    stream = await host.open_stream(peer.peer_id, protocol, timeout=CONNECT_TIMEOUT)
    async with stream:
        yield stream


def _not_fail(message: Message) -> Message:
    if isinstance(message, Fail):
        raise RemoteFailure(message.code, message.text, retry=message.retry)
    return message
