"""A client of the mesh: it finds a node, asks, and reads the answer as it comes. No torch needed.

async with open_host(Identity(os.urandom(32)), listen=[]) as host:
    rows = await ask_peers(host, musivum)
    async for event in complete(host, choose_entry(rows), request):
        ...
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from p2p.dht import DhtMode, DhtSettings, open_dht
from p2p.peers import Host
from p2p.streams import FrameStream
from tessella.core.addresses import PeerAddress
from tessella.core.completions import CompletionRequest
from tessella.core.errors import (
    BadFrame,
    OutOfTurn,
    PeerClosed,
    PeerReset,
    PeerUnreachable,
    RemoteFailure,
)
from tessella.core.ids import ModelId
from tessella.core.messages import (
    COMPLETE,
    STATUS,
    TRACKER,
    AskPeers,
    AskStatus,
    Begun,
    Complete,
    Delta,
    Done,
    Fail,
    Message,
    Peers,
    Progress,
    Status,
)
from tessella.core.peers import PeerRow, decode_rows
from tessella.core.records import to_row

CONNECT_TIMEOUT = 5.0
ANSWER_TIMEOUT = 10.0
# Several bootstraps are tried at a time; one that is there answers within a second.
JOIN_SECONDS = 10.0
# The entry says something every second, be it only how far it is. Before the first word it
# tokenises, finds a chain and connects to it, and each of those has a shorter limit.
WORD_TIMEOUT = 30.0

Event = Begun | Progress | Delta | Done


async def ask_peers(host: Host, musivum: PeerAddress, model: str = "") -> list[PeerRow]:
    """The nodes of a model, or of all, as a musivum lists them. Raises PeerGone, RemoteFailure."""
    async with _stream(host, musivum, TRACKER) as stream:
        await stream.send(AskPeers(ModelId(model)))
        answer = _not_fail(await stream.receive(ANSWER_TIMEOUT))
    if not isinstance(answer, Peers):
        raise OutOfTurn(f"{type(answer).__name__} in place of a list of peers")
    return decode_rows(answer.rows)


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
    host: Host, peer: PeerAddress, request: CompletionRequest
) -> AsyncIterator[Event]:
    """Begun, a Delta a token, Done, and Progress in between. Closing the iterator cancels.

    Raises RemoteFailure with the node's code, PeerGone if it went away.
    """
    async with _stream(host, peer, COMPLETE) as stream:
        # Where we were refused already, the reason is there to be read.
        with suppress(PeerClosed, PeerReset):
            await stream.send(Complete(request.encode()))
        while True:
            event = _not_fail(await stream.receive(WORD_TIMEOUT))
            if not isinstance(event, Event):
                raise OutOfTurn(f"{type(event).__name__} in an answer")
            yield event
            if isinstance(event, Done):
                return


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
