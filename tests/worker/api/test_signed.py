"""Who may call the routes of other programs, and that nobody else has a byte of a body read."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import trio
from fastapi import FastAPI
from starlette.requests import Request as WebRequest
from trio.testing import MockClock

from p2p.streams import FrameStream
from tessella.core.call_rules import FUTURE_SECONDS, NONCE_SECONDS, PAST_SECONDS
from tessella.core.errors import (
    BodyTooLarge,
    CallReplayed,
    ClockSkew,
    PeerGone,
    TooManyRequests,
)
from tessella.core.identity import PURPOSE_TRACKER, Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import TOKENS, AskStatus, encode
from tessella.core.signed_request import HEADERS, PEER, SIGNATURE, Request, sign_request
from tessella.worker.api.orders import PATH as ORDER_PATH
from tessella.worker.api.orders import OrderRoom, add_orders
from tessella.worker.api.signed import (
    PACE,
    PACE_START_SECONDS,
    CallNonces,
    SignedCalls,
    read_body,
)
from tessella.worker.api.tokens import TokenRoom, add_tokens
from tessella.worker.http_hops.asks import FORWARD_PATH, MAX_TOKEN_BODY, TOKEN_PATH, Act, Ask
from tessella.worker.orders import Orders
from tessella.worker.tokens import TokenDesk
from tests.worker.http_net import EPOCH, Node, wall

OURS, MUSIVUM = Identity(b"n" * 32), Identity(b"m" * 32)
PEER_BEFORE, OTHER = Identity(b"p" * 32), Identity(b"o" * 32)
MODEL = ModelId("toy")
NAME = bytes(16)
ORDER = json.dumps({"model_repo": MODEL, "layer_ranges": [[2, 4]]}).encode()

Headers = dict[str, str]


@dataclass
class Counted(httpx.AsyncByteStream):
    """A body that knows whether a byte of it was read."""

    body: bytes
    reads: int = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.reads += 1
        yield self.body


@dataclass
class Route:
    """A signed route, and what a good call of it is."""

    signer: Identity
    asked: Request


ROUTES = {
    "forward": Route(
        PEER_BEFORE,
        Request(
            "POST",
            FORWARD_PATH,
            Ask(NAME, Act.WRITE, 1).query(),
            encode(AskStatus()),
            OURS.peer_id,
        ),
    ),
    "token_stream": Route(
        PEER_BEFORE,
        Request(
            "POST",
            TOKEN_PATH + bytes(16).hex(),
            Ask(NAME, Act.WRITE, 1).query(),
            encode(AskStatus()),
            OURS.peer_id,
        ),
    ),
    "update_assignment": Route(MUSIVUM, Request("POST", ORDER_PATH, (), ORDER, OURS.peer_id)),
}


@dataclass
class Scene:
    app: FastAPI
    client: httpx.AsyncClient
    wanted: list[LayerRange] = field(default_factory=list)
    frames: list[object] = field(default_factory=list)

    async def send(
        self, asked: Request, headers: Mapping[str, str]
    ) -> tuple[httpx.Response, Counted]:
        body = Counted(asked.body)
        url = asked.path + ("?" + urlencode(asked.query) if asked.query else "")
        sent = {"Content-Length": str(len(asked.body)), **headers}
        request = self.client.build_request(asked.method, url, headers=sent)
        request.stream = body
        return await self.client.send(request), body

    async def open(self, route: Route) -> None:
        """A stream that a write can go to, where the route is one of streams."""
        if not route.asked.query:
            return
        asked = replace(route.asked, query=Ask(NAME, Act.OPEN).query(), body=b"")
        answer, _ = await self.send(asked, sign(asked, route.signer))
        assert answer.status_code == 200


def sign(asked: Request, by: Identity, ahead: float = 0.0) -> Headers:
    """The headers of a call made now, or so many seconds ahead."""
    return sign_request(asked, by, wall() + ahead, secrets.token_bytes(16))


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with trio.open_nursery() as nursery:
        node = Node(OURS, nursery)
        transport = httpx.ASGITransport(node.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://node.test") as client:
            found = Scene(node.app, client)

            async def hop(stream: FrameStream) -> None:
                try:
                    while True:
                        found.frames.append(await stream.receive())
                except PeerGone:
                    pass

            node.forward(hop)
            door = node.door(node.table(TOKENS), MAX_TOKEN_BODY)
            add_tokens(node.app, TokenRoom(door, TokenDesk(OURS)))
            orders = Orders([MUSIVUM.peer_id], found.wanted.append, wall)
            add_orders(node.app, OrderRoom.of(OURS.peer_id, orders, MODEL, wall))
            await trio.sleep(2 * PAST_SECONDS)
            yield found
        nursery.cancel_scope.cancel()


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"] if answer.status_code != 200 else ""


Bad = Callable[[Route], Headers]


def changed(**changes: Any) -> Bad:
    return lambda route: sign(replace(route.asked, **changes), route.signer)


def in_the_name_of(claimed: Callable[[Route], PeerId]) -> Bad:
    """Signed by a foreign key, and said to be another's."""
    return lambda route: {**sign(route.asked, OTHER), PEER: claimed(route)}


def for_another_purpose(route: Route) -> Headers:
    headers = sign(route.asked, route.signer)
    return {**headers, SIGNATURE: route.signer.sign(PURPOSE_TRACKER, b"text").hex()}


BAD: dict[str, tuple[Bad, str]] = {
    "unsigned": (lambda route: {}, "bad_signature"),
    **{
        f"no {name}": (
            lambda route, name=name: {  # type: ignore[misc]
                key: value for key, value in sign(route.asked, route.signer).items() if key != name
            },
            "bad_signature",
        )
        for name in HEADERS
    },
    "a signature too short": (
        lambda route: {**sign(route.asked, route.signer), SIGNATURE: "ab" * 63},
        "bad_signature",
    ),
    "another's name": (in_the_name_of(lambda route: route.signer.peer_id), "bad_signature"),
    "no key's name": (in_the_name_of(lambda route: PeerId("nobody")), "bad_signature"),
    "another purpose": (for_another_purpose, "bad_signature"),
    "another path": (changed(path="/v1/other"), "bad_signature"),
    "another method": (changed(method="PUT"), "bad_signature"),
    "another query": (changed(query=(("act", "read"),)), "bad_signature"),
    "another node": (changed(audience=OTHER.peer_id), "bad_signature"),
    "too late": (
        lambda route: sign(route.asked, route.signer, -PAST_SECONDS - 1),
        "clock_skew",
    ),
    "too early": (
        lambda route: sign(route.asked, route.signer, FUTURE_SECONDS + 1),
        "clock_skew",
    ),
}


@pytest.mark.parametrize("name", ROUTES)
@pytest.mark.parametrize("why", BAD)
async def test_a_call_that_is_not_signed_right_is_a_401_before_its_body_is_read(
    name: str, why: str, autojump_clock: MockClock
) -> None:
    bad, code = BAD[why]
    route = ROUTES[name]
    async with scene() as s:
        await s.open(route)
        answer, body = await s.send(route.asked, bad(route))
        assert told(answer) == (401, code)
        assert int(answer.headers["Tessella-Time"]) == int(wall())
        assert body.reads == 0
        assert (s.wanted, s.frames) == ([], [])


@pytest.mark.parametrize("name", ROUTES)
async def test_another_body_than_was_signed_is_a_401(name: str, autojump_clock: MockClock) -> None:
    route = ROUTES[name]
    async with scene() as s:
        await s.open(route)
        other = replace(route.asked, body=route.asked.body + b" ")
        answer, body = await s.send(other, sign(route.asked, route.signer))
        assert told(answer) == (401, "bad_signature")
        assert body.reads == 1
        assert (s.wanted, s.frames) == ([], [])


@pytest.mark.parametrize("name", ROUTES)
async def test_a_call_is_taken_once(name: str, autojump_clock: MockClock) -> None:
    route = ROUTES[name]
    async with scene() as s:
        await s.open(route)
        headers = sign(route.asked, route.signer)
        answer, _ = await s.send(route.asked, headers)
        assert answer.status_code == 200
        await trio.sleep(PAST_SECONDS - 1)
        answer, body = await s.send(route.asked, headers)
        assert told(answer) == (401, "call_replayed")
        assert body.reads == 0
        assert len(s.wanted + s.frames) <= 1


@pytest.mark.parametrize("signer", [PEER_BEFORE, OTHER, OURS])
async def test_an_order_is_for_a_musivum_of_this_node_alone(
    signer: Identity, autojump_clock: MockClock
) -> None:
    route = ROUTES["update_assignment"]
    async with scene() as s:
        answer, body = await s.send(route.asked, sign(route.asked, signer))
        assert told(answer) == (401, "bad_signature")
        assert body.reads == 0
        assert s.wanted == []


async def test_a_header_that_is_none_is_named(autojump_clock: MockClock) -> None:
    route = ROUTES["forward"]
    async with scene() as s:
        for header, value in (("tessella-nonce", "z" * 32), ("tessella-created", "yesterday")):
            headers = {**sign(route.asked, route.signer), header: value}
            answer, body = await s.send(route.asked, headers)
            assert told(answer) == (400, "bad_request")
            assert header in answer.json()["error"]["message"]
            assert body.reads == 0


async def test_a_call_from_before_this_node_began_is_not_taken(autojump_clock: MockClock) -> None:
    route = ROUTES["update_assignment"]
    headers = sign(route.asked, route.signer)
    await trio.sleep(1.0)
    calls = SignedCalls(OURS.peer_id, wall, CallNonces())
    request = WebRequest(
        {
            "type": "http",
            "method": "POST",
            "path": ORDER_PATH,
            "query_string": b"",
            "headers": [(key.encode(), value.encode()) for key, value in headers.items()],
        }
    )
    with pytest.raises(ClockSkew, match="before this node began"):
        calls.admit(request)
    same = SignedCalls(OURS.peer_id, lambda: wall() - 1.0, CallNonces())
    assert same.admit(request).peer_id == MUSIVUM.peer_id


def test_a_nonce_is_remembered_for_its_time_and_for_its_peer() -> None:
    nonces = CallNonces()
    nonces.use(OURS.peer_id, b"nonce", EPOCH)
    nonces.use(OTHER.peer_id, b"nonce", EPOCH)
    for later in (0.0, NONCE_SECONDS - 1):
        with pytest.raises(CallReplayed):
            nonces.use(OURS.peer_id, b"nonce", EPOCH + later)
    nonces.use(OURS.peer_id, b"nonce", EPOCH + NONCE_SECONDS)
    assert len(nonces) == 2


def test_who_calls_much_has_the_oldest_of_his_own_forgotten() -> None:
    nonces = CallNonces(limit=100, per_peer=3)
    nonces.use(OTHER.peer_id, b"0", EPOCH)
    for number in range(5):
        nonces.use(OURS.peer_id, bytes([number]), EPOCH + number)
    for number in (2, 3, 4):
        with pytest.raises(CallReplayed):
            nonces.use(OURS.peer_id, bytes([number]), EPOCH + 5)
    with pytest.raises(CallReplayed):
        nonces.use(OTHER.peer_id, b"0", EPOCH + 5)
    assert len(nonces) == 4


def test_a_full_table_forgets_nobody_for_a_newcomer() -> None:
    nonces = CallNonces(limit=3, per_peer=3)
    for peer in (b"a", b"b", b"c"):
        nonces.use(Identity(peer * 32).peer_id, b"0", EPOCH)
    with pytest.raises(TooManyRequests):
        nonces.use(OURS.peer_id, b"0", EPOCH + 1)
    for peer in (b"a", b"b", b"c"):
        with pytest.raises(CallReplayed):
            nonces.use(Identity(peer * 32).peer_id, b"0", EPOCH + 1)
    nonces.use(Identity(b"a" * 32).peer_id, b"1", EPOCH + 1)
    assert len(nonces) == 3
    nonces.use(OURS.peer_id, b"0", EPOCH + 1 + NONCE_SECONDS)
    assert len(nonces) == 1


async def test_a_body_is_read_to_its_cap_and_no_further(autojump_clock: MockClock) -> None:
    pieces = 0

    async def receive() -> dict[str, Any]:
        nonlocal pieces
        pieces += 1
        return {"type": "http.request", "body": bytes(10), "more_body": True}

    headers = sign(replace(ROUTES["forward"].asked, body=bytes(30)), PEER_BEFORE)
    request = WebRequest(
        {
            "type": "http",
            "method": "POST",
            "path": FORWARD_PATH,
            "query_string": urlencode(ROUTES["forward"].asked.query).encode(),
            "headers": [(key.encode(), value.encode()) for key, value in headers.items()],
        },
        receive,
    )
    call = SignedCalls(OURS.peer_id, wall, CallNonces()).admit(request)
    with pytest.raises(BodyTooLarge):
        await read_body(request, call, 25)
    assert pieces == 3


async def test_a_body_that_trickles_is_given_up(autojump_clock: MockClock) -> None:
    route = ROUTES["forward"]

    class Trickle(httpx.AsyncByteStream):
        sent = 0

        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                await trio.sleep(1.0)
                self.sent += PACE // 2
                yield bytes(PACE // 2)

    async with scene() as s:
        await s.open(route)
        headers = {**sign(route.asked, route.signer), "Content-Length": str(1 << 20)}
        url = f"{route.asked.path}?{urlencode(route.asked.query)}"
        request = s.client.build_request("POST", url, headers=headers)
        request.stream = body = Trickle()
        answer = await s.client.send(request)
        assert told(answer) == (408, "request_timeout")
        assert body.sent <= 2 * PACE_START_SECONDS * PACE
        assert s.frames == []


async def test_a_body_that_was_signed_is_read(autojump_clock: MockClock) -> None:
    route = ROUTES["update_assignment"]
    async with scene() as s:
        answer, body = await s.send(route.asked, sign(route.asked, MUSIVUM))
        assert (answer.status_code, answer.json()) == (200, {"ok": True})
        assert body.reads == 1
        assert s.wanted == [LayerRange(2, 4)]
