"""Nodes that answer requests: a peer of the mesh, or an HTTP API; and which one to ask."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from p2p.peers import Host
from tessella.cli.discovery import LOCAL_API, NO_WAY, Way, choose_model, list_rows
from tessella.cli.nearness import MAX_PROBED, connect_times
from tessella.client import Event, Grant, ask_status, complete
from tessella.core.addresses import PeerAddress
from tessella.core.completions import CompletionRequest
from tessella.core.errors import BadConfig, BadFrame, RemoteFailure, TessellaError
from tessella.core.ids import ModelId
from tessella.core.peers import PeerRow, rank_entries

if TYPE_CHECKING:
    # It takes a fifth of a second to import, and not every command speaks HTTP.
    import httpx

LOCAL_SECONDS = 0.5
"""For a program on this machine to answer."""
MAX_STATUS = 1024 * 1024
"""Bytes of a status document: it names every tensor and every peer."""


@dataclass(frozen=True, slots=True)
class PeerDoor:
    """A peer that answers requests for a model."""

    model: ModelId
    host: Host
    address: PeerAddress
    grant: Grant | None = None
    """A ticket for one request, which begins there."""

    def complete(self, request: CompletionRequest) -> AsyncIterator[Event]:
        """The events of an answer; see `tessella.client.complete`."""
        return complete(self.host, self.address, request, self.grant)


@dataclass(frozen=True, slots=True)
class HttpDoor:
    """An HTTP API that answers requests for a model."""

    model: ModelId
    client: httpx.AsyncClient
    url: str

    def complete(self, request: CompletionRequest) -> AsyncIterator[Event]:
        """The events of an answer; see `tessella.web.completions.complete_http`."""
        from tessella.web.completions import complete_http

        return complete_http(self.client, self.url, request)


Door = PeerDoor | HttpDoor


async def find_doors(way: Way, host: Host | None, client: httpx.AsyncClient) -> list[Door]:
    """Whom to ask, the best first, at least one.

    A way that is empty leads to a node on this machine. Raises UnknownModel, ModelUnavailable,
    PeerGone, RemoteFailure; BadConfig where nothing is there, or where the model has to be
    chosen. `host` is there wherever the way goes over libp2p.
    """
    api_url = way.api_url
    if way.is_empty:
        api_url = await local_api(client)
    if api_url:
        model = ModelId(way.model or await _model_at(client, api_url))
        return [HttpDoor(model, client, api_url)]
    if host is None or way.is_empty:
        raise BadConfig(NO_WAY)
    if way.peer is not None:
        return [PeerDoor(ModelId(way.model or await _model_of(host, way.peer)), host, way.peer)]
    rows = await list_rows(host, way)
    model = choose_model(rows, way.model)
    entries = await nearest_entries(host, [row for row in rows if row.model == model])
    return [PeerDoor(model, host, entry) for entry in entries[:MAX_PROBED]]


async def nearest_entries(host: Host, rows: list[PeerRow]) -> list[PeerAddress]:
    """The nodes that can be an entry, the near and idle first. Raises ModelUnavailable."""
    entries = rank_entries(rows, {})
    if len(entries) == 1:
        return entries
    entries = rank_entries(rows, await connect_times(host, entries))
    for passed_over in entries[1:MAX_PROBED]:
        await host.disconnect(passed_over.peer_id)
    return entries


async def local_api(client: httpx.AsyncClient) -> str:
    """The API of a node on this machine; empty if none answers at the usual place."""
    try:
        document = await _status_at(client, LOCAL_API, LOCAL_SECONDS)
    except TessellaError:
        return ""
    return LOCAL_API if document.get("role") == "worker" else ""


async def _model_of(host: Host, peer: PeerAddress) -> str:
    model = (await ask_status(host, peer)).get("model")
    if not isinstance(model, str) or not model:
        raise BadConfig(f"{peer.peer_id} serves no model; is it a musivum? then use --musivum")
    return model


async def _model_at(client: httpx.AsyncClient, url: str) -> str:
    """The model of a node, or the only one of any other server of these routes."""
    try:
        document = await _status_at(client, url)
        if document.get("role") == "musivum":
            raise BadConfig(f"{url} is a musivum, which answers no requests: --api-url of a node")
        if isinstance(model := document.get("model"), str) and model:
            return model
    except (BadFrame, RemoteFailure):
        # No node of ours has to be behind these routes.
        pass
    return await _only_model_at(client, url)


async def _only_model_at(client: httpx.AsyncClient, url: str) -> str:
    from tessella.web.client import CallLimits, get_json

    listed = await get_json(client, f"{url}/v1/models", limits=CallLimits(answer=MAX_STATUS))
    data = listed.get("data") if isinstance(listed, dict) else None
    found = [one.get("id") for one in data or () if isinstance(one, dict)]
    models = [name for name in found if isinstance(name, str) and name]
    if len(models) != 1:
        told = ", ".join(map(json.dumps, models[:8])) or "no model that it names"
        raise BadConfig(f"{url} serves {told}: choose one with --model")
    return models[0]


async def _status_at(
    client: httpx.AsyncClient, url: str, seconds: float | None = None
) -> dict[str, object]:
    from tessella.web.client import TOTAL_SECONDS, CallLimits, get_json

    limits = CallLimits(answer=MAX_STATUS, seconds=seconds or TOTAL_SECONDS)
    document = await get_json(client, f"{url}/status", limits=limits)
    if not isinstance(document, dict):
        raise BadFrame(f"{url}/status answered with what is no object")
    return document
