"""Model, device and claim: what is proposed, refused, and shown before it is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tessella.catalogue import DEFAULT_MODEL
from tessella.cli.wizard.meshes import Mesh, Orchestrator
from tessella.cli.wizard.offers import Need, Offer
from tessella.cli.wizard.work import Work, ask_work, default_model, read_model
from tessella.core.errors import BadConfig, PeerSilent
from tessella.core.layers import LayerRange

HOLE = LayerRange(9, 30)
NEEDY = Offer(
    model="needy",
    serving=1,
    nodes=1,
    health="incomplete",
    missing=(HOLE,),
    need=Need(HOLE, 716),
    floor_mb=256,
)
DONE = Offer(model="done", serving=2, nodes=2, health="healthy", replica_mb=900)
AT = Orchestrator(text="https://tracker.example", url="https://tracker.example")
SILENT = PeerSilent("it did not answer")

Made = Callable[..., Any]


def mesh_of(door: Any, at: Orchestrator = AT) -> Mesh:
    return Mesh(at, door, tuple(door.known))


@pytest.mark.parametrize(
    ("offers", "model"),
    [([], DEFAULT_MODEL), ([DONE], "done"), ([DONE, NEEDY], "needy"), ([NEEDY, DONE], "needy")],
)
def test_the_model_that_lacks_a_node_goes_first(offers: list[Offer], model: str) -> None:
    assert default_model(offers) == model


@pytest.mark.parametrize(
    ("text", "model"), [("1", "done"), ("2", "needy"), ("org/other", "org/other"), ("2b", "2b")]
)
def test_a_model_is_a_row_or_a_name(text: str, model: str) -> None:
    assert read_model(text, [DONE, NEEDY]) == model


@pytest.mark.parametrize("text", ["0", "3", "9" * 5000, "", "a b", "x" * 300, "\x1b[2J"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(BadConfig):
        read_model(text, [DONE, NEEDY])


def test_returns_alone_take_what_the_mesh_needs(
    script: Made, fake_door: Made, fake_machine: Made, preview: Made
) -> None:
    talk, door = script("", "", "", ""), fake_door([DONE, NEEDY], preview(9, 30))
    work = ask_work(talk, mesh_of(door), fake_machine(("cuda", "cpu"), 4000))
    assert work == Work("needy", "cuda", 716, "")
    assert door.previewed == [("needy", 716, "cuda")]
    assert talk.said.index("A claim of 716 MB would get layers 9:30 of 30.") == len(talk.said) - 1
    assert "cuda has 4000 MB free. Layers 9:30 are held by nobody: 716 MB hold them." in talk.text
    assert "9:30" in talk.said[1]


def test_a_claim_below_the_floor_is_asked_for_again_with_the_floor(
    script: Made, fake_door: Made, fake_machine: Made, preview: Made
) -> None:
    talk, door = script("needy", "", "100", "300", "900", ""), fake_door([NEEDY], preview(9, 12))
    door.least = 400
    assert ask_work(talk, mesh_of(door), fake_machine()).claim_mb == 900
    assert "No claim of this mesh is below 256 MB." in talk.said
    assert "A claim of 300 MB holds no layer here: 400 would." in talk.said
    assert door.previewed == [("needy", 300, "cpu"), ("needy", 900, "cpu")]


def test_a_claim_that_gets_too_little_is_not_taken(
    script: Made, fake_door: Made, fake_machine: Made, preview: Made
) -> None:
    talk, door = script("", "", "500", "n", "800", "y"), fake_door([NEEDY], preview(9, 20))
    assert ask_work(talk, mesh_of(door), fake_machine()).claim_mb == 800


@pytest.mark.parametrize(("sure", "claim"), [("", 716), ("y", 5000)])
def test_more_than_the_memory_is_claimed_only_by_a_yes(
    script: Made, fake_door: Made, fake_machine: Made, preview: Made, sure: str, claim: int
) -> None:
    answers = ("", "", "5000", sure, "716", "y")
    talk, door = script(*answers), fake_door([NEEDY], preview(0, 30, replica=True))
    assert ask_work(talk, mesh_of(door), fake_machine(memory=4000)).claim_mb == claim
    assert "That is more than the 4000 MB that are free. A claim of 5000 MB" in talk.text


def test_another_model_may_be_chosen_in_place_of_a_claim(
    script: Made, fake_door: Made, fake_machine: Made, preview: Made
) -> None:
    talk, door = script("2", "", "Back", "1", "", "", ""), fake_door([DONE, NEEDY], preview(0, 30))
    assert ask_work(talk, mesh_of(door), fake_machine()) == Work("done", "cpu", 900, "")


def test_a_model_that_nobody_serves_is_claimed_unseen(
    script: Made, fake_door: Made, fake_machine: Made
) -> None:
    talk, door = script("", "", "", ""), fake_door()
    work = ask_work(talk, mesh_of(door), fake_machine(memory=1000))
    assert work == Work(DEFAULT_MODEL, "cpu", 900, "")
    assert f"Nobody serves {DEFAULT_MODEL} yet" in talk.text


def test_a_musivum_that_falls_silent_does_not_stop_anybody(
    script: Made, fake_door: Made, fake_machine: Made
) -> None:
    talk, door = script("", "", "", ""), fake_door([NEEDY], fails=[SILENT, SILENT])
    assert ask_work(talk, mesh_of(door), fake_machine()).claim_mb == 716
    assert "What it needs is not known: it did not answer." in talk.said
    assert "What it would get is not known: it did not answer." in talk.said


def test_whoever_went_on_without_an_answer_asks_nobody(script: Made, fake_machine: Made) -> None:
    talk = script("my-model", "", "500", "")
    work = ask_work(talk, Mesh(AT, None, ()), fake_machine())
    assert work == Work("my-model", "cpu", 500, "")
    assert "What it gets is said when the node registers." in talk.said


def test_in_the_swarm_the_layers_are_asked_for(
    script: Made, fake_door: Made, fake_machine: Made
) -> None:
    needy = Offer(model="needy", missing=(HOLE,), need=Need(HOLE, None))
    talk = script("", "", "12", "5:5", "", "800", "")
    work = ask_work(talk, mesh_of(fake_door([needy]), Orchestrator()), fake_machine())
    assert work == Work("needy", "cpu", 800, "9:30")
    assert "Not a layer range START:STOP: '12'." in talk.said


def test_a_device_that_is_not_here_is_asked_for_again(
    script: Made, fake_door: Made, fake_machine: Made, preview: Made
) -> None:
    talk = script("", "cuda", "cpu", "", "")
    door = fake_door([NEEDY], preview(9, 30))
    assert ask_work(talk, mesh_of(door), fake_machine()).device == "cpu"
    assert "this machine has cpu" in talk.text
