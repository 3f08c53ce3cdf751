"""Who a node is, and what it signs to prove it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tessella.core.challenge import Challenge
from tessella.core.errors import BadSignature
from tessella.core.identity import Identity
from tessella.web.app import make_app
from tessella.worker.api.p2p_id import P2pIdRoom, add_p2p_id

OURS, CALLER = Identity(b"n" * 32), Identity(b"m" * 32)
ASKED = Challenge(CALLER.peer_id, bytes(range(16)))


@pytest.fixture
def addrs() -> list[str]:
    """Where the node can be dialled; a test changes it."""
    return ["/ip4/192.0.2.1/tcp/4001"]


@pytest.fixture
async def client(addrs: list[str]) -> AsyncIterator[httpx.AsyncClient]:
    app = make_app("node", "0", rate=None)
    add_p2p_id(app, P2pIdRoom(OURS, lambda: tuple(addrs)))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://node.test") as opened:
        yield opened


async def test_who_asks_for_no_proof_is_told_who_answers(
    client: httpx.AsyncClient, addrs: list[str]
) -> None:
    answer = await client.get("/p2p_id")
    assert answer.json() == {
        "peer_id": OURS.peer_id,
        "multiaddrs": [f"/ip4/192.0.2.1/tcp/4001/p2p/{OURS.peer_id}"],
    }
    assert answer.headers["content-type"] == "application/json"
    assert "tessella-signature" not in answer.headers
    addrs.clear()
    assert (await client.get("/p2p_id")).json()["multiaddrs"] == []


async def test_a_challenge_is_answered_with_a_signature_of_this_call(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.get("/p2p_id", headers=ASKED.headers())
    ASKED.check(OURS.peer_id, answer.headers, answer.content)
    for other in (Challenge(OURS.peer_id, ASKED.nonce), Challenge(CALLER.peer_id, bytes(16))):
        with pytest.raises(BadSignature):
            other.check(OURS.peer_id, answer.headers, answer.content)
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("tessella-peer", None),
        ("tessella-peer", "no/peer"),
        ("tessella-nonce", None),
        ("tessella-nonce", "zz" * 16),
        ("tessella-nonce", "00" * 65),
    ],
)
async def test_a_header_that_is_none_is_400_and_named(
    client: httpx.AsyncClient, header: str, value: str | None
) -> None:
    headers = {key: text for key, text in (ASKED.headers() | {header: value}).items() if text}
    answer = await client.get("/p2p_id", headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "bad_request")
    assert f"header {header}" in error["message"]
    assert "tessella-signature" not in answer.headers


async def test_a_parameter_that_nobody_reads_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.get("/p2p_id", params={"verbose": "1"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")


async def test_openapi_tells_of_the_headers_both_ways(client: httpx.AsyncClient) -> None:
    documented = (await client.get("/openapi.json")).json()["paths"]["/p2p_id"]["get"]
    assert [each["name"] for each in documented["parameters"]] == [
        "Tessella-Peer",
        "Tessella-Nonce",
    ]
    assert not any(each["required"] for each in documented["parameters"])
    assert set(documented["responses"]) == {"200", "400", "429"}
    answer = documented["responses"]["200"]
    assert "Tessella-Signature" in answer["headers"]
    assert answer["content"]["application/json"]["schema"]["$ref"].endswith("/P2pId")
