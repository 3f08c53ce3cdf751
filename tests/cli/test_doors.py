"""Which nodes a way leads to."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from trio.testing import MockClock

from p2p.testing import MemoryNetwork
from tessella.cli.discovery import LOCAL_API, Way
from tessella.cli.doors import HttpDoor, PeerDoor, find_doors
from tessella.core.errors import BadConfig, PeerUnreachable, RemoteFailure, UnknownModel
from tests.cli.scripted import TOY, Api, nobody, open_node, row_of

URL = "http://node:8080"


async def test_a_peer_that_is_named_is_the_only_door(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        (door,) = await find_doors(Way(peer=node.host.address), node.client, node.http)
        assert door == PeerDoor(TOY, node.client, node.host.address)


async def test_the_near_go_before_the_far_and_the_far_are_let_go(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork(latency=0.01)
    async with open_node(net=net) as node, net.host(bytes([3]) * 32) as other:
        node.rows = lambda: [row_of(other, queue_depth=1), row_of(other, canary=True)]
        doors = await find_doors(Way(musivum=node.host.address), node.client, node.http)
        found = [door.address for door in doors if isinstance(door, PeerDoor)]
        assert found == [node.host.address, other.address]
        assert node.client.connected() == (node.host.address.peer_id,)


async def test_a_model_that_nobody_serves_is_named(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        with pytest.raises(UnknownModel, match="'other'"):
            await find_doors(Way(musivum=node.host.address, model="other"), node.client, node.http)


@pytest.mark.parametrize(
    ("way", "model"), [(Way(api_url=URL), "toy"), (Way(api_url=URL, model="mine"), "mine")]
)
async def test_an_api_has_the_model_of_its_status_unless_one_is_named(way: Way, model: str) -> None:
    async with open_node(Api()) as node:
        (door,) = await find_doors(way, None, node.http)
        assert door == HttpDoor(model, node.http, URL)  # type: ignore[arg-type]


def another_server(listed: Any) -> Any:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json=listed)
        return httpx.Response(404, text="not here")

    return answer


async def test_another_server_is_asked_for_its_only_model() -> None:
    async with open_node(another_server({"data": [{"id": "theirs"}]})) as node:
        (door,) = await find_doors(Way(api_url=URL), None, node.http)
        assert door.model == "theirs"


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        ({"data": [{"id": "a"}, {"id": "b"}]}, r'"a", "b": choose one with --model'),
        ({"data": []}, "no model"),
        ({"data": {"id": "a"}}, "no model"),
        ([], "no model"),
    ],
)
async def test_a_choice_that_cannot_be_made_is_the_users(listed: Any, told: str) -> None:
    async with open_node(another_server(listed)) as node:
        with pytest.raises(BadConfig, match=told):
            await find_doors(Way(api_url=URL), None, node.http)


async def test_a_musivum_is_no_node() -> None:
    async with open_node(Api({"role": "musivum"})) as node:
        with pytest.raises(BadConfig, match="musivum, which answers no requests"):
            await find_doors(Way(api_url=URL), None, node.http)


@pytest.mark.parametrize(
    ("answer", "error"),
    [(nobody, PeerUnreachable), (lambda _: httpx.Response(500), RemoteFailure)],
)
async def test_an_api_that_does_not_answer_is_told(answer: Any, error: type[Exception]) -> None:
    async with open_node(answer) as node:
        with pytest.raises(error):
            await find_doors(Way(api_url=URL), None, node.http)


async def test_without_a_way_a_node_on_this_machine_is_asked() -> None:
    async with open_node(Api()) as node:
        (door,) = await find_doors(Way(), None, node.http)
        assert door == HttpDoor(TOY, node.http, LOCAL_API)


@pytest.mark.parametrize(
    "answer",
    [nobody, Api({"role": "musivum"}), Api({}), lambda _: httpx.Response(200, text="hello")],
)
async def test_where_no_node_is_one_line_names_every_way(answer: Any) -> None:
    async with open_node(answer) as node:
        with pytest.raises(BadConfig) as caught:
            await find_doors(Way(), None, node.http)
    told = str(caught.value)
    assert "\n" not in told
    for way in ("--api-url", "--peer", "--musivum", "TESSELLA_MUSIVUM", "--bootstrap", LOCAL_API):
        assert way in told
