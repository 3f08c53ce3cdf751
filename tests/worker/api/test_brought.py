"""Tickets over HTTP: by whoever signs the request with the key that the ticket is for."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from trio.testing import MockClock

from tessella.core.identity import Identity
from tessella.core.signed_request import Request, sign_request
from tessella.core.ticket_header import ticket_header
from tests.worker.conftest import wall_clock
from tests.worker.doors import Doors
from tests.worker.mint import Mint
from tests.worker.ticketed import MUSIVUM, RANGES, STRANGER, for_client

OpenHub = Callable[..., Any]
CLIENT = Identity(b"c" * 32)
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
BODIES = {
    CHAT: {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3},
    TEXT: {"prompt": "hello", "max_tokens": 3},
}


@pytest.fixture
def mint() -> Mint:
    return Mint(MUSIVUM, wall_clock)


@pytest.fixture
def doors(monkeypatch: pytest.MonkeyPatch) -> Doors:
    return Doors(monkeypatch)


def headers(
    mesh: Any, body: bytes, *, path: str = CHAT, key: Identity = CLIENT, off: float = 0.0
) -> dict[str, str]:
    audience = mesh.nodes[0].identity.peer_id
    asked = Request("POST", path, (), body, audience)
    signed = sign_request(asked, key, wall_clock() + off, secrets.token_bytes(16))
    return {**signed, "Content-Type": "application/json"}


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_signed_request_with_a_ticket_is_served_in_its_tier(
    open_hub: OpenHub,
    autojump_clock: MockClock,
    mint: Mint,
    doors: Doors,
    path: str,
    stream: bool,
) -> None:
    async with (
        open_hub(RANGES, **doors.config) as (mesh, _),
        doors.client(mesh.nodes[0]) as client,
    ):
        body = json.dumps({**BODIES[path], "stream": stream}).encode()
        signed = for_client(mint, mesh, tier="vip")
        told = {"Tessella-Ticket": ticket_header(signed.payload, signed.signature)}
        answer = await client.post(
            path, content=body, headers={**headers(mesh, body, path=path), **told}
        )
        assert (answer.status_code, answer.headers["tessella-tier"]) == (200, "vip")
        # Another request is another ticket.
        again = await client.post(
            path, content=body, headers={**headers(mesh, body, path=path), **told}
        )
        assert code_of(again) == (403, "ticket_used")


async def test_without_a_ticket_there_is_no_tier(
    open_hub: OpenHub, autojump_clock: MockClock, doors: Doors
) -> None:
    async with (
        open_hub(RANGES, **doors.config) as (mesh, _),
        doors.client(mesh.nodes[0]) as client,
    ):
        answer = await client.post(CHAT, json=BODIES[CHAT])
        assert answer.status_code == 200
        assert "tessella-tier" not in answer.headers


async def test_a_request_that_is_signed_by_nobody_or_another_buys_nothing(
    open_hub: OpenHub, autojump_clock: MockClock, mint: Mint, doors: Doors
) -> None:
    async with (
        open_hub(RANGES, **doors.config) as (mesh, _),
        doors.client(mesh.nodes[0]) as client,
    ):
        body = json.dumps(BODIES[CHAT]).encode()
        signed = for_client(mint, mesh)
        told = {"Tessella-Ticket": ticket_header(signed.payload, signed.signature)}

        async def post(sent: dict[str, str], content: bytes = body) -> tuple[int, str]:
            return code_of(await client.post(CHAT, content=content, headers={**sent, **told}))

        assert await post({"Content-Type": "application/json"}) == (401, "bad_signature")
        assert await post(headers(mesh, body, key=STRANGER)) == (403, "bad_ticket")
        assert await post(headers(mesh, b"{}")) == (401, "bad_signature")
        assert await post(headers(mesh, body, path=TEXT)) == (401, "bad_signature")
        assert await post(headers(mesh, body, off=-3600.0)) == (401, "clock_skew")
        twice = headers(mesh, body, key=STRANGER)
        assert await post(twice) == (403, "bad_ticket")
        assert await post(twice) == (401, "call_replayed")


@pytest.mark.parametrize(
    ("ticket", "body"),
    [("nonsense", BODIES[CHAT]), (ticket_header(b"x", bytes(64)), {**BODIES[CHAT], "n": 2})],
)
async def test_what_is_no_ticket_or_for_several_is_a_bad_request(
    open_hub: OpenHub, autojump_clock: MockClock, doors: Doors, ticket: str, body: Any
) -> None:
    async with (
        open_hub(RANGES, **doors.config) as (mesh, _),
        doors.client(mesh.nodes[0]) as client,
    ):
        sent = json.dumps(body).encode()
        told = {**headers(mesh, sent), "Tessella-Ticket": ticket}
        answer = await client.post(CHAT, content=sent, headers=told)
        assert code_of(answer) == (400, "bad_request")
        assert "tessella-ticket" in answer.json()["error"]["message"]
