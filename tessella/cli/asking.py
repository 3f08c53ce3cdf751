"""Requests, each to the node that holds the conversation so far, or to the next that answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from p2p.peers import Host
from tessella.cli.answer import Answer, fill_answer
from tessella.cli.discovery import Way, choose_model, client_host, list_rows, settled
from tessella.cli.doors import Door, HttpDoor, PeerDoor, find_doors
from tessella.cli.granting import Granting, is_of_ticket
from tessella.core.addresses import PeerAddress
from tessella.core.completions import CompletionRequest
from tessella.core.errors import PeerGone, RemoteFailure, TessellaError, UnknownModel
from tessella.core.ids import ModelId

if TYPE_CHECKING:
    import httpx

Make = Callable[[ModelId], CompletionRequest]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the KV of a conversation lies: at a peer, or behind an HTTP API."""

    model: ModelId
    address: PeerAddress | None = None
    api_url: str = ""
    after: bytes = b""
    """The request id of the ticket that it was computed for; empty where there was none."""


@dataclass(slots=True)
class Asking:
    """Asks the node that answered last, and another where that one is gone.

    Nothing that was said is lost with a node, since a request holds the whole conversation: the
    next one computes it again.
    """

    way: Way
    host: Host | None
    client: httpx.AsyncClient
    door: Door | None = None
    """The node that was asked last, until it fails."""
    granting: Granting | None = None
    """Where tickets come from, if any do."""

    @property
    def place(self) -> Place | None:
        """Where the KV lies, if anywhere."""
        match self.door:
            case PeerDoor(model, _, address):
                after = self.granting.after if self.granting is not None else b""
                return Place(model=model, address=address, after=after)
            case HttpDoor(model, _, url):
                return Place(model=model, api_url=url)
        return None

    def return_to(self, place: Place) -> None:
        """Ask there first, unless the way names a node, or another model."""
        if self.way.names_one or self.way.model not in ("", place.model):
            return
        if place.api_url:
            self.door = HttpDoor(place.model, self.client, place.api_url)
        elif place.address is not None and self.host is not None:
            self.door = PeerDoor(place.model, self.host, place.address)
            if self.granting is not None:
                self.granting.after = place.after

    def choose(self, model: str) -> None:
        """Find a node of another model for the next request."""
        self.way, self.door = replace(self.way, model=model), None
        if self.granting is not None:
            self.granting.after = b""

    async def ask(self, make: Make, answer: Answer, say: Say) -> None:
        """Fill `answer` and `say` its text as it comes. Raises what finding and asking raise.

        A node that goes before its first word is passed over. What was said before an error or a
        cancellation stays in `answer`.
        """
        if self.granting is not None and await self._ask_granted(self.granting, make, answer, say):
            return
        if self.door is not None and await self._ask_again(self.door, make, answer, say):
            return
        doors = await find_doors(self.way, self.host, self.client)
        for door in doors:
            try:
                return await self._ask_at(door, make, answer, say)
            except PeerGone:
                if answer.pieces or door is doors[-1]:
                    raise

    async def _ask_granted(self, granting: Granting, make: Make, answer: Answer, say: Say) -> bool:
        """Ask with a ticket, where it leads to; False without one, or where nothing was said."""
        model = await self._model(granting.host)
        grant = await granting.grant(make(model))
        if grant is None:
            return False
        door = PeerDoor(model, granting.host, grant.entry, grant)
        try:
            await self._ask_at(door, make, answer, say)
        except TessellaError as exc:
            # Another draw may lead around whoever failed.
            granting.after = b""
            if answer.pieces or not (_is_gone(exc) or is_of_ticket(exc)):
                raise
            self.door = None
            return False
        granting.after = grant.ticket.request_id
        # It is good once.
        self.door = replace(door, grant=None)
        return True

    async def _model(self, host: Host) -> ModelId:
        """The model of the conversation, or of the way, or the only one of the mesh."""
        if self.door is not None:
            return self.door.model
        if self.way.model:
            return ModelId(self.way.model)
        return choose_model(await list_rows(host, self.way), "")

    async def _ask_again(self, door: Door, make: Make, answer: Answer, say: Say) -> bool:
        """Ask the node of the last request; False if it serves no more and nothing was said."""
        try:
            await self._ask_at(door, make, answer, say)
        except (PeerGone, RemoteFailure) as exc:
            if answer.pieces or not _is_gone(exc):
                raise
            return False
        return True

    async def _ask_at(self, door: Door, make: Make, answer: Answer, say: Say) -> None:
        self.door = door
        try:
            await fill_answer(door.complete(make(door.model)), answer, say)
        except TessellaError as exc:
            if _is_gone(exc):
                self.door = None
            raise


def _is_gone(error: TessellaError) -> bool:
    """Whether a node does not serve, so that another may."""
    if isinstance(error, PeerGone):
        return True
    return isinstance(error, RemoteFailure) and (error.retry or error.code == UnknownModel.code)


@asynccontextmanager
async def open_asking(way: Way, place: Place | None = None) -> AsyncIterator[Asking]:
    """What asks along a way, first where a conversation was left.

    Raises BadConfig at once where there is neither, nor a node on this machine, and what
    `discovery.settled` does.
    """
    from tessella.web.client import open_client

    try:
        way = await settled(way)
    except PeerGone:
        if place is None:
            raise
        way = replace(way, musivum_url="")
    async with open_client() as client, AsyncExitStack() as stack:
        returns_to_peer = place is not None and place.address and not way.names_one
        host = None
        if way.meets_peers or returns_to_peer:
            host = await stack.enter_async_context(client_host(way.key))
        asking = Asking(way, host, client, granting=_granting(way, host))
        if place is not None:
            asking.return_to(place)
        if way.is_empty and asking.door is None:
            asking.door = (await find_doors(way, host, client))[0]
        yield asking


def _granting(way: Way, host: Host | None) -> Granting | None:
    if way.key is None or way.musivum is None or way.names_one or host is None:
        return None
    return Granting(host, way.key, way.musivum)
