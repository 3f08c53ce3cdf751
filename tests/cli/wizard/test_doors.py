"""The doors as the questions use them: calls that block, and errors without groups around them."""

from __future__ import annotations

import json
from functools import partial

import httpx
import pytest
import trio

from tessella.cli.wizard.doors import MusivumDoor, SwarmDoor, http_way, run_async
from tessella.core.errors import ClaimTooSmall, PeerUnreachable, RemoteFailure

URL = "https://tracker.example"


def door(status: int, body: object) -> MusivumDoor:
    def handler(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, content=json.dumps(body).encode())

    return MusivumDoor(partial(http_way, URL, httpx.MockTransport(handler)))


def failure(code: str) -> dict[str, object]:
    return {"error": {"code": code, "message": "256 MB would"}}


def test_a_mesh_without_models_has_no_offers() -> None:
    assert door(200, []).offers("cpu") == []


def test_a_claim_that_is_too_small_is_refused_with_the_words_of_musivum() -> None:
    with pytest.raises(ClaimTooSmall, match="256 MB would"):
        door(409, failure("claim_too_small")).preview("small", 1, "cpu")


def test_of_a_model_that_nobody_knows_there_is_no_preview() -> None:
    assert door(404, failure("unknown_manifest")).preview("small", 1, "cpu") is None


def test_other_errors_keep_their_code() -> None:
    with pytest.raises(RemoteFailure) as caught:
        door(429, failure("too_many_requests")).preview("small", 1, "cpu")
    assert caught.value.code == "too_many_requests"


def test_nobody_at_a_url_is_one_error() -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    lonely = MusivumDoor(partial(http_way, URL, httpx.MockTransport(handler)))
    with pytest.raises(PeerUnreachable, match=r"tracker\.example"):
        lonely.offers("cpu")


def test_errors_come_out_of_their_groups() -> None:
    async def main() -> None:
        async with trio.open_nursery():
            raise PeerUnreachable("nobody")

    with pytest.raises(PeerUnreachable):
        run_async(main)


def test_a_swarm_without_bootstrap_is_asked_nothing() -> None:
    swarm = SwarmDoor([])
    assert swarm.offers("cpu") == []
    assert swarm.offer("small", "cpu").need is None
    assert swarm.preview("small", 1, "cpu") is None
