"""What the wizard asks a musivum, over either of its doors: the same routes, the same answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import httpx
import trio

from p2p.peers import Host
from tessella.cli.wizard.bodies import (
    HEALTH_BODY,
    MODEL_LIST,
    PREVIEW_BODY,
    HealthBody,
    PreviewBody,
    read_body,
)
from tessella.cli.wizard.offers import Offer, offer_of
from tessella.client import ANSWER_TIMEOUT, CONNECT_TIMEOUT
from tessella.core.addresses import PeerAddress
from tessella.core.errors import (
    BadFrame,
    ClaimTooSmall,
    OutOfTurn,
    RemoteFailure,
    TessellaError,
    UnknownManifest,
)
from tessella.core.messages import TRACKER, Ask, Document, Fail
from tessella.web.client import CallLimits, get_json

MODELS = "/api/network/models"
HEALTH = "/model_health"
PREVIEW = "/api/v1/assignment"
ANSWER = CallLimits(answer=1024 * 1024)
"""A list of a thousand models is a tenth of it."""
HEALTHS_SHOWN = 16
"""Models whose holes are asked for; a list of more shows the rest without."""
HEALTHS_SECONDS = 15.0
"""For all of them together; a musivum that answers does so within milliseconds."""

Query = Mapping[str, str]
Question = Callable[[str, Query], Awaitable[object]]
"""Asks a route by its path, with a query; gives the parsed answer. Raises TessellaError."""


def http_question(client: httpx.AsyncClient, url: str) -> Question:
    """Questions to the routes below a URL."""

    async def question(path: str, query: Query) -> object:
        asked = f"{url}{path}" + (f"?{urlencode(query)}" if query else "")
        return await get_json(client, asked, limits=ANSWER)

    return question


@asynccontextmanager
async def libp2p_question(host: Host, musivum: PeerAddress) -> AsyncIterator[Question]:
    """Questions on one stream, which is closed with the context. Raises PeerGone."""
    await host.connect(musivum, timeout=CONNECT_TIMEOUT)
    stream = await host.open_stream(musivum.peer_id, TRACKER, timeout=CONNECT_TIMEOUT)
    turn = trio.Lock()

    async def question(path: str, query: Query) -> object:
        async with turn:
            await stream.send(Ask(path, json.dumps(dict(query)).encode()))
            answer = await stream.receive(ANSWER_TIMEOUT)
        if isinstance(answer, Fail):
            raise RemoteFailure(answer.code, answer.text, retry=answer.retry)
        if not isinstance(answer, Document):
            raise OutOfTurn(f"{type(answer).__name__} in place of a document")
        try:
            return json.loads(answer.document)
        except (ValueError, RecursionError):
            raise BadFrame(f"{path} is answered with what is no JSON") from None

    async with stream:
        yield question


async def ask_offers(question: Question, device: str) -> list[Offer]:
    """The models that are served or loaded; of one whose holes are not told, what the list says."""
    listed = read_body(MODEL_LIST, await question(MODELS, {}), MODELS)
    healths: dict[str, HealthBody] = {}

    async def note_health(model: str) -> None:
        # The list is shown all the same.
        try:
            healths[model] = await ask_health(question, model, device)
        except TessellaError:
            return

    with trio.move_on_after(HEALTHS_SECONDS):
        async with trio.open_nursery() as nursery:
            for one in listed[:HEALTHS_SHOWN]:
                nursery.start_soon(note_health, one.model_id)
    return [offer_of(one, healths.get(one.model_id)) for one in listed]


async def ask_health(question: Question, model: str, device: str) -> HealthBody:
    """What a model lacks, and what its layers cost on a device."""
    answer = await question(HEALTH, {"model_id": model, "device": device})
    return read_body(HEALTH_BODY, answer, HEALTH)


async def ask_preview(question: Question, model: str, claim_mb: int, device: str) -> PreviewBody:
    """What a claim would get. Raises ClaimTooSmall for none, UnknownManifest for a model of which
    musivum knows nothing."""
    query = {"model_id": model, "vram_mb": str(claim_mb), "device": device}
    try:
        return read_body(PREVIEW_BODY, await question(PREVIEW, query), PREVIEW)
    except RemoteFailure as exc:
        for kind in (ClaimTooSmall, UnknownManifest):
            if exc.code == kind.code:
                raise kind(str(exc)) from None
        raise
