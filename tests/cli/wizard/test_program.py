"""The whole conversation, and what is on the disk after it."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tessella.cli.wizard import program, run_wizard
from tessella.cli.wizard.answers import Answers
from tessella.cli.wizard.offers import Need, Offer
from tessella.cli.wizard.program import converse, write
from tessella.core.errors import BadConfig, BadKey
from tessella.core.layers import LayerRange
from tessella.ending import EndedBySignal
from tessella.keys import load_key

Made = Callable[..., Any]

URL = "https://tracker.example"
HOLE = LayerRange(9, 30)
NEEDY = Offer(model="needy", missing=(HOLE,), need=Need(HOLE, 716), floor_mb=256)
# Orchestrator; model, device, claim, take it; weights; key; ports; write it.
RETURNS = ("", "", "", "", "", "", "", "", "", "")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> Path:
    """Where the file is to be; the working directory is empty."""
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory / "etc" / "worker_config.toml"


@pytest.fixture
def talked(
    script: Made, fake_door: Made, fake_machine: Made, preview: Made, place: Path
) -> Callable[..., tuple[Any, Answers]]:
    """Holds the conversation with these answers; gives it with what was answered."""

    def talk(*answers: str) -> tuple[Any, Answers]:
        held = script(*answers)
        door = fake_door([NEEDY], preview(9, 30))
        found = converse(
            held,
            place,
            {"ORCHESTRATOR_URL": URL},
            machine=fake_machine,
            opened=lambda _: door,
        )
        return held, found

    return talk


def test_returns_alone_make_a_file(talked: Made, place: Path, home: Path) -> None:
    talk, answers = talked(*RETURNS)
    assert talk.left == 0
    assert not place.exists()
    write(talk, place, answers)
    read = tomllib.loads(place.read_text())
    key = home / ".config" / "tessella" / "node.key"
    assert read == {
        "orchestrator_url": URL,
        "keypair_path": str(key),
        "default_model": "needy",
        "worker": {
            "vram_mb": 716,
            "models_dir": "./models",
            "api_host": "0.0.0.0",
            "api_port": 8080,
            "p2p_host": "0.0.0.0",
            "p2p_port": 9080,
            "device": "cpu",
        },
        "gpu": {"oom_streak": 3, "streak_window_secs": 30},
    }
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert os.listdir(place.parent) == [place.name]
    assert place.read_text() in talk.said
    assert f"This node is {load_key(key).peer_id}" in talk.text
    assert f"tessella-worker --config {place}" in talk.text


def test_the_file_is_one_that_a_node_reads(talked: Made, place: Path, home: Path) -> None:
    from tessella.worker.settings import missing, read_node_settings

    talk, answers = talked(*RETURNS)
    write(talk, place, answers)
    settings = read_node_settings(place, {}, {})
    assert missing(settings) == []
    assert settings.mesh.orchestrator_url == URL
    assert (settings.worker.vram_mb, settings.worker.p2p_port) == (716, 9080)


def test_so_is_that_of_a_node_of_the_swarm(talked: Made, place: Path, home: Path) -> None:
    from tessella.worker.settings import missing, read_node_settings

    talk, answers = talked("none", "", "", "", "9:30", *RETURNS[3:])
    write(talk, place, answers)
    settings = read_node_settings(place, {}, {})
    assert missing(settings) == []
    assert settings.worker.kademlia_enabled
    assert settings.worker.layer_range == HOLE


def test_every_question_has_its_row_in_the_documents(talked: Made) -> None:
    page = (Path(__file__).parents[3] / "docs" / "wizard.md").read_text()
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    one, _ = talked(*RETURNS)
    other, _ = talked("none", "", "", "", "9:30", *RETURNS[3:])
    asked = [question for question, _ in (*one.asked, *other.asked)]
    assert {row for row in rows[2:] if not any(each.startswith(row) for each in asked)} == {
        "Ask `again`, or go `on` without"
    }
    assert [each for each in asked if not any(each.startswith(row) for row in rows)] == []


def test_a_file_that_is_not_wanted_is_not_written(talked: Made, place: Path, home: Path) -> None:
    with pytest.raises(BadConfig, match="was not written, as you wished"):
        talked(*RETURNS[:-1], "n")
    assert not place.parent.exists()
    assert not home.exists()


@pytest.mark.parametrize("answered", range(len(RETURNS)))
def test_the_end_of_input_writes_nothing(
    talked: Made, place: Path, home: Path, answered: int
) -> None:
    with pytest.raises(EOFError):
        talked(*RETURNS[:answered])
    assert not place.parent.exists()
    assert not home.exists()


@pytest.mark.parametrize(
    ("end", "number"), [(EOFError(), 2), (KeyboardInterrupt(), 2), (EndedBySignal(15), 15)]
)
def test_an_end_before_the_last_question_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: Path,
    end: BaseException,
    number: int,
) -> None:
    def ended(*_: object) -> Answers:
        raise end

    monkeypatch.setattr(program, "converse", ended)
    with pytest.raises(EndedBySignal) as caught:
        run_wizard(place, {})
    assert caught.value.number == number
    out, err = capsys.readouterr()
    assert (out, err.strip().count("\n")) == ("", 0)
    assert f"nothing was written: no {place}" in err


def test_a_file_that_is_there_is_not_asked_about(talked: Made, place: Path) -> None:
    place.parent.mkdir()
    place.symlink_to("nowhere")
    with pytest.raises(BadConfig, match="is there already"):
        talked()


def test_nor_one_that_could_not_be_written(talked: Made, place: Path) -> None:
    place.parent.write_text("a file")
    with pytest.raises(BadConfig, match=r"etc is not a directory that you may write in"):
        talked()


def test_a_file_that_came_meanwhile_is_kept(talked: Made, place: Path) -> None:
    talk, answers = talked(*RETURNS)
    place.parent.mkdir()
    place.write_text("mine")
    with pytest.raises(BadConfig, match="written by another program meanwhile"):
        write(talk, place, answers)
    assert place.read_text() == "mine"


def test_where_no_key_can_be_made_there_is_no_file(talked: Made, place: Path, home: Path) -> None:
    talk, answers = talked(*RETURNS)
    home.write_text("no directory")
    with pytest.raises(BadKey):
        write(talk, place, answers)
    assert not place.parent.exists()


def test_what_its_owner_should_know_of_the_machine_is_said(
    script: Made, fake_machine: Made, place: Path
) -> None:
    talk = script()
    with pytest.raises(EOFError):
        converse(talk, place, {}, machine=lambda: fake_machine(notes=("torch is not installed",)))
    assert "torch is not installed." in talk.said
