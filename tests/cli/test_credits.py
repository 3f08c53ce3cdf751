"""`tessella-worker credits`: beside a node's own book, and a musivum that may be away."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from tessella.core.identity import Identity
from tessella.core.settlement import Became, Outcome
from tessella.keys import create_key, load_key
from tessella.web import client as web_client
from tessella.web.client import open_client
from tessella.worker.proofs.book import Answer, open_book
from tessella.worker.proofs.schema import book_path
from tests.worker.proofs.conftest import a_bill_for

MUSIVUM = Identity(b"m" * 32).peer_id
URL = "http://10.9.9.9"
ACCOUNT = {"peer_id": "x", "micro": 1_001_500_000, "credits": 1001.5, "tier": "VIP"}


class Musivum:
    """Says who it is, and what an account has."""

    def __init__(self) -> None:
        self.account: Any = ACCOUNT
        self.is_away = False
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        if self.is_away:
            raise httpx.ConnectError("refused")
        if request.url.path == "/p2p_id":
            return httpx.Response(200, json={"peer_id": MUSIVUM, "multiaddrs": []})
        return httpx.Response(200, json=self.account)


@pytest.fixture
def musivum(monkeypatch: pytest.MonkeyPatch) -> Musivum:
    musivum = Musivum()
    transport = httpx.MockTransport(musivum)
    monkeypatch.setattr(web_client, "open_client", lambda: open_client(transport))
    return musivum


@pytest.fixture
def key(home: Path) -> Path:
    path = home / ".config" / "tessella" / "node.key"
    create_key(path)
    return path


OUTCOMES = (
    Outcome(Became.PAID, 2_500_000),
    Outcome(Became.REFUSED, 0, "unattested", "rows that no neighbour saw"),
    Outcome(Became.WAITING),
)


async def fill(key: Path) -> None:
    """A book of four: one paid, one refused, one that waits and one that was not brought."""
    async with open_book(book_path(key), load_key(key), lambda: 5.0) as book:
        for number in range(4):
            await book.serve(a_bill_for(number))
        owed = await book.due(3, 10**9)
        pairs = zip(owed, OUTCOMES, strict=True)
        await book.record([Answer(each.sequence, outcome, 1e9) for each, outcome in pairs])


Run = Callable[..., Any]


def test_everything_is_told(command: Run, musivum: Musivum, key: Path) -> None:
    trio.run(fill, key)
    ended = command("tessella-worker", "credits", f"--orchestrator-url={URL}", "--json")
    assert ended.status == 0, ended.err
    told = json.loads(ended.out)
    assert told["peer_id"] == load_key(key).peer_id
    assert told["account"] == {**ACCOUNT, "tier": "vip"}
    assert told["musivum"] == "answered"
    book = told["book"]
    assert (book["sessions"], book["layer_positions"]) == (4, 4 * 42)
    assert (book["unsent"], book["waiting"], book["paid"], book["refused"]) == (1, 1, 1, 1)
    assert (book["credits"], book["reasons"]) == (2.5, {"unattested": 1})
    assert [each["state"] for each in book["last"]] == ["refused", "paid"]
    asked = musivum.asked[-1]
    assert (asked.method, asked.url.path) == ("GET", "/api/v1/credits")
    assert asked.headers["tessella-peer"] == told["peer_id"]


def test_people_read_it_too(command: Run, musivum: Musivum, key: Path) -> None:
    trio.run(fill, key)
    ended = command("tessella-worker", "credits", f"--orchestrator-url={URL}")
    assert "balance   1001.500 credits (VIP)" in ended.out
    assert "paid      1 proofs, 2.500 credits" in ended.out
    assert "refused   1 proofs: unattested 1" in ended.out
    assert "refused: unattested: rows that no neighbour saw" in ended.out
    assert "audits" not in ended.out, "nothing is held against it"


def test_an_owner_is_told_what_is_held_against_a_node(
    command: Run, musivum: Musivum, key: Path
) -> None:
    musivum.account = {**ACCOUNT, "held_against": "a suspect:\nall of it is audited"}
    ended = command("tessella-worker", "credits", f"--orchestrator-url={URL}")
    (line,) = [line for line in ended.out.splitlines() if line.startswith("audits")]
    assert line.startswith("audits    a suspect:")
    assert line.endswith("all of it is audited")


def test_it_works_with_musivum_away_and_says_so(command: Run, musivum: Musivum, key: Path) -> None:
    trio.run(fill, key)
    musivum.is_away = True
    ended = command("tessella-worker", "credits", f"--orchestrator-url={URL}")
    assert ended.status == 0
    assert "balance   unknown (peer_unreachable: " in ended.out
    assert "served    4 sessions" in ended.out


@pytest.mark.parametrize(
    "account", [{}, [], {"micro": 1.5, "tier": "VIP"}, {"micro": 1, "tier": 7}]
)
def test_what_is_no_account_is_not_shown(
    command: Run, musivum: Musivum, key: Path, account: Any
) -> None:
    musivum.account = account
    ended = command("tessella-worker", "credits", f"--orchestrator-url={URL}", "--json")
    told = json.loads(ended.out)
    assert (told["account"], told["musivum"].partition(":")[0]) == (None, "bad_frame")


def test_a_node_that_served_nobody_yet_has_an_account(
    command: Run, musivum: Musivum, key: Path
) -> None:
    ended = command("tessella-worker", "credits", f"--orchestrator-url={URL}")
    assert "served    nothing for a ticket yet" in ended.out
    assert not book_path(key).exists()


def test_a_node_of_no_musivum_has_no_account(command: Run, musivum: Musivum, key: Path) -> None:
    ended = command("tessella-worker", "credits", "--json")
    assert json.loads(ended.out)["musivum"] == "no musivum is configured"
    assert musivum.asked == []


def test_it_is_read_while_the_node_writes(command: Run, musivum: Musivum, key: Path) -> None:
    async def beside() -> Any:
        async with open_book(book_path(key), load_key(key)) as book:
            await book.serve(a_bill_for(1))
            return await trio.to_thread.run_sync(command, "tessella-worker", "credits", "--json")

    ended = trio.run(beside)
    assert json.loads(ended.out)["book"]["unsent"] == 1


def test_another_key_has_another_book(command: Run, musivum: Musivum, home: Path) -> None:
    key = home / "worker-2.key"
    create_key(key)
    trio.run(fill, key)
    ended = command("tessella-worker", "credits", f"--key={key}", "--json")
    assert json.loads(ended.out)["book"]["sessions"] == 4


def test_without_a_key_there_is_nothing_to_tell(command: Run, musivum: Musivum) -> None:
    ended = command("tessella-worker", "credits")
    assert ended.status == 1
    assert "there is no key" in ended.err
