"""A conversation on disk: the second run goes on where the first one ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from tessella.cli.asking import Place
from tessella.cli.chat_plan import ChatPlan, begun
from tessella.cli.conversation import Conversation
from tessella.cli.dialogue import Dialogue
from tessella.cli.discovery import Way
from tessella.cli.session_file import MAX_SESSION_FILE, Saved, load_session, save_session
from tessella.core.addresses import PeerAddress
from tessella.core.completions import ChatMessage
from tessella.core.errors import BadConfig
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.sampling import Sampling
from tests.cli.scripted import TOY, open_node

SESSION = "0123456789abcdef" * 2
PEER = PeerAddress(Identity(bytes(32)).peer_id, ("/ip4/10.0.0.1/tcp/4001", "/dns/x/tcp/2"))
TURNS = [ChatMessage("user", "the \x1b sky\n汉?"), ChatMessage("assistant", "blue")]


@pytest.mark.parametrize(
    "place", [None, Place(model=TOY, address=PEER), Place(model=TOY, api_url="http://[::1]:8080")]
)
def test_what_is_saved_is_loaded(tmp_path: Path, place: Place | None) -> None:
    path = tmp_path / "new" / "session.json"
    save_session(path, Conversation(system="be brief", turns=TURNS, session=SESSION), place)
    saved = load_session(path)
    assert saved is not None
    assert (saved.session, saved.system, list(saved.turns)) == (SESSION, "be brief", TURNS)
    assert (saved.place, saved.model) == (place, "" if place is None else "toy")
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_a_file_there_is_nothing_to_go_on_with(tmp_path: Path) -> None:
    assert load_session(tmp_path / "none.json") is None


def written(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    path = tmp_path / "session.json"
    save_session(path, Conversation(turns=TURNS, session=SESSION), Place(model=TOY, address=PEER))
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(format="other"),
        lambda document: document.update(version=2),
        lambda document: document.pop("version"),
        lambda document: document.update(session="short"),
        lambda document: document.update(session=5),
        lambda document: document.update(model=None),
        lambda document: document.update(system=[]),
        lambda document: document.update(turns={}),
        lambda document: document["turns"].pop(),
        lambda document: document["turns"].reverse(),
        lambda document: document["turns"][0].update(content=1),
        lambda document: document["turns"].__setitem__(0, "x"),
        lambda document: document["place"].update(peer_id="x"),
        lambda document: document["place"].update(addrs="x"),
        lambda document: document["place"].update(addrs=[5]),
        lambda document: document.update(place={"api_url": "ftp://x"}),
        lambda document: document["turns"][0].update(content="\ud800"),
        lambda document: document.clear(),
    ],
)
def test_a_file_of_anything_else_is_named_and_left_as_it_is(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    path = written(tmp_path, change)
    before = path.read_bytes()
    with pytest.raises(
        BadConfig, match=r"session\.json is no session of `tessella chat`: ."
    ) as got:
        load_session(path)
    assert "\n" not in str(got.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no session"),
        (b"[1]", "no session"),
        (b"[" * 100_000, "no session"),
        (b"\xff", "UTF-8"),
        (b" " * (MAX_SESSION_FILE + 1), "longer than"),
    ],
)
def test_a_torn_file_is_named(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "session.json"
    path.write_bytes(data)
    with pytest.raises(BadConfig, match=reason) as got:
        load_session(path)
    assert str(path) in str(got.value)


def test_a_directory_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="cannot read the session file"):
        load_session(tmp_path)
    with pytest.raises(BadConfig, match="cannot write the session file"):
        save_session(tmp_path, Conversation(session=SESSION), None)


async def test_a_second_run_goes_on_at_the_same_entry(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    path = tmp_path / "session.json"

    async def run(node: Any, way: Way, question: str) -> None:
        saved = load_session(path)
        plan = ChatPlan(way=way, sampling=Sampling(), file=path)
        asking = node.asking(way)
        if saved is not None and saved.place is not None:
            asking.return_to(saved.place)
        dialogue = Dialogue(asking, begun(plan, saved, talks=False), file=path)
        await dialogue.answer(question)

    async with open_node() as node:
        node.reply = lambda _: node.says("blue")
        await run(node, Way(musivum=node.host.address), "the sky?")
        await run(node, Way(), "the sea?")
    first, second = node.requests
    assert first.session == second.session != ""
    assert [turn.content for turn in second.messages] == ["the sky?", "blue", "the sea?"]
    assert second.model == ModelId("toy")


def test_a_system_message_that_is_given_replaces_the_one_that_was() -> None:
    saved = Saved(session=SESSION, system="be brief", turns=())
    plan = ChatPlan(way=Way(), sampling=Sampling())
    assert begun(plan, saved, talks=True).system == "be brief"
    given = ChatPlan(way=Way(), sampling=Sampling(), system="be long")
    assert begun(given, saved, talks=True).system == "be long"
