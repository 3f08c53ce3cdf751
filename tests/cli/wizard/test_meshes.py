"""Which mesh: what may be typed, and what happens where nobody answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tessella.cli.wizard.doors import MusivumDoor, SwarmDoor
from tessella.cli.wizard.meshes import (
    ORCHESTRATOR_VARIABLE,
    Orchestrator,
    ask_mesh,
    open_door,
    read_bootstrap,
    read_orchestrator,
)
from tessella.cli.wizard.offers import Offer
from tessella.core.addresses import parse_peer
from tessella.core.errors import BadAddress, PeerUnreachable

PEER = "/ip4/203.0.113.7/tcp/4001/p2p/12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5"
OTHER = PEER.replace("ip4/203.0.113.7", "dns4/tracker.example")
URL = "https://tracker.example"
NOBODY = PeerUnreachable("https://tracker.example cannot be reached")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (URL, Orchestrator(text=URL, url=URL)),
        (f"{URL}/", Orchestrator(text=URL, url=URL)),
        (
            "http://[::1]:8081/m/",
            Orchestrator(text="http://[::1]:8081/m", url="http://[::1]:8081/m"),
        ),
        (PEER, Orchestrator(text=PEER, peer=parse_peer(PEER))),
        ("none", Orchestrator()),
        ("None", Orchestrator()),
    ],
)
def test_an_orchestrator_is_read(text: str, read: Orchestrator) -> None:
    assert read_orchestrator(text) == read


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tracker.example",
        "ftp://tracker.example",
        "https://a b",
        f"{URL}?x=1",
        f"{URL}#x",
        "https://user:pass@tracker.example",
        "/ip4/203.0.113.7/tcp/4001",
        "/ip4/203.0.113.7/tcp/4001/p2p/nobody",
    ],
)
def test_what_is_no_orchestrator_is_refused(text: str) -> None:
    with pytest.raises(BadAddress):
        read_orchestrator(text)


@pytest.mark.parametrize(
    ("text", "peers"), [("", ()), (PEER, (PEER,)), (f" {PEER}, {OTHER} ", (PEER, OTHER))]
)
def test_bootstrap_peers_are_read(text: str, peers: tuple[str, ...]) -> None:
    assert read_bootstrap(text) == peers


def test_each_has_its_door() -> None:
    assert isinstance(open_door(read_orchestrator(URL)), MusivumDoor)
    assert isinstance(open_door(read_orchestrator(PEER)), MusivumDoor)
    assert isinstance(open_door(Orchestrator(bootstrap=(PEER,))), SwarmDoor)


def test_the_environment_is_the_default(script: Callable[..., Any], fake_door: Any) -> None:
    talk = script("")
    door = fake_door([Offer(model="small")])
    mesh = ask_mesh(talk, {ORCHESTRATOR_VARIABLE: f" {URL} "}, lambda _: door, "cpu")
    assert talk.asked == [("Orchestrator", URL)]
    assert (mesh.orchestrator.text, mesh.door, mesh.offers) == (URL, door, (Offer(model="small"),))


def test_without_a_variable_there_is_no_default(script: Callable[..., Any], fake_door: Any) -> None:
    talk = script("", "nonsense", URL)
    ask_mesh(talk, {}, lambda _: fake_door(), "cpu")
    assert talk.asked == [("Orchestrator", "")] * 3
    assert "'nonsense'" in talk.text


def test_nobody_who_answers_may_be_asked_again(script: Callable[..., Any], fake_door: Any) -> None:
    talk = script(URL, "", "")
    door = fake_door(fails=[NOBODY])
    mesh = ask_mesh(talk, {}, lambda _: door, "cpu")
    assert [line for line in talk.said if "cannot be reached" in line] == [f"No answer: {NOBODY}."]
    assert talk.default_of("Orchestrator") == URL
    assert mesh.door is door


def test_or_another_one_may_be_asked(script: Callable[..., Any], fake_door: Any) -> None:
    doors = {URL: fake_door(fails=[NOBODY]), PEER: fake_door()}
    talk = script(URL, "again", PEER)
    mesh = ask_mesh(talk, {}, lambda at: doors[at.text], "cpu")
    assert (mesh.orchestrator.text, mesh.door) == (PEER, doors[PEER])


def test_or_one_goes_on_without_an_answer(script: Callable[..., Any], fake_door: Any) -> None:
    talk = script(URL, "what", "on")
    mesh = ask_mesh(talk, {}, lambda _: fake_door(fails=[NOBODY]), "cpu")
    assert (mesh.orchestrator.text, mesh.door, mesh.offers) == (URL, None, ())
    assert "Answer `again` or `on`." in talk.said


def test_the_swarm_is_found_through_peers(script: Callable[..., Any], fake_door: Any) -> None:
    talk = script("none", "nobody", PEER)
    mesh = ask_mesh(talk, {}, lambda _: fake_door(), "cpu")
    assert mesh.orchestrator == Orchestrator(bootstrap=(PEER,))
    assert mesh.orchestrator.is_swarm
