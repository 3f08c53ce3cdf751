"""The ledger is listed, and checked from outside by whoever likes to."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from musivum.bodies.fields import NoArguments
from musivum.bodies.ledger import ProofArguments
from musivum.cli import asking
from musivum.ledger import Ledger
from musivum.pages.ledger import LedgerPages
from musivum.pages.ledger_words import entry_body
from musivum.store import open_store
from musivum.store.memory import MemoryStore
from tessella.core.identity import Identity
from tessella.core.ledger import Entry, Line, open_entry, seal_entry
from tests.core.work import MUSIVUM, NOW, Work, identity

ENTRIES = 7


async def pay(ledger: Ledger) -> None:
    for number in range(ENTRIES):
        work = Work([identity(1)], request_id=bytes([number]) * 16)
        await ledger.settle([work.proof(0)])


@dataclass
class Outside:
    """What a musivum with a ledger shows, and how it lies about it."""

    head: dict[str, Any]
    entries: list[str]
    page: int = 3
    """How many entries it gives at most at once."""
    busy: int = 0
    """How often it says first that one asks too fast."""
    asked: list[int] = field(default_factory=list)

    def show_head(self, _: dict[str, str]) -> httpx.Response:
        return httpx.Response(200, json=self.head)

    def show_page(self, query: dict[str, str]) -> httpx.Response:
        if self.busy:
            self.busy -= 1
            told = {"code": "too_many_requests", "message": "slowly", "type": "rate_limit_error"}
            return httpx.Response(429, json={"error": told})
        index, count = int(query["index"]), min(self.page, int(query["count"]))
        self.asked.append(index)
        return httpx.Response(
            200, json={"head": self.head, "entries": self.entries[index : index + count]}
        )


@pytest.fixture
def outside(fake: Any) -> Outside:
    """Seven payments, as they are shown by HTTP."""

    async def made() -> Outside:
        ledger = Ledger(MUSIVUM, MemoryStore(), lambda: NOW)
        await pay(ledger)
        pages = LedgerPages(ledger)
        head = await pages.head(NoArguments())
        page = await pages.proof(ProofArguments(index=0, count=ENTRIES))
        return Outside(head.model_dump(mode="json"), list(page.entries))

    shown: Outside = trio.run(made)
    fake.pages = {"/ledger/head": shown.show_head, "/ledger/proof": shown.show_page}
    return shown


def told(command: Any, *flags: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("ledger", "verify", "--json", *flags).out)
    return found


def test_a_ledger_that_holds_is_walked_from_its_first_entry_to_its_head(
    command: Any, outside: Outside
) -> None:
    assert told(command) == {
        "ok": True,
        "musivum": MUSIVUM.peer_id,
        "entries": ENTRIES,
        "accounts": 2,
        "sum": 0,
        "minted": 3.5,
    }
    assert outside.asked == [0, 3, 6]
    ended = command("ledger", "verify")
    lines = [line.split() for line in ended.out.splitlines()]
    assert ended.status == 0
    assert ["entries", "7"] in lines
    assert ["sum", "0"] in lines
    assert ["head", "ok"] in lines


def altered(payload: str, **changes: Any) -> str:
    entry: Entry = open_entry(b64decode(payload))
    return b64encode(seal_entry(replace(entry, **changes))).decode()


def richer(entry: str) -> str:
    lines = (Line(identity(1).peer_id, 600_000), Line("mint", -600_000))
    return altered(entry, lines=lines)


Lie = Callable[[list[str]], list[str]]
LIES: dict[str, tuple[Lie, int]] = {
    "an amount": (lambda all_: [*all_[:3], richer(all_[3]), *all_[4:]], 3),
    "the last amount": (lambda all_: [*all_[:-1], richer(all_[-1])], ENTRIES - 1),
    "one is gone": (lambda all_: [*all_[:2], *all_[3:]], 2),
    "the tail is cut": (lambda all_: all_[:5], 5),
    "one twice": (lambda all_: [*all_[:4], *all_[3:]], 4),
    "nonsense": (lambda all_: [*all_[:4], "AAAA", *all_[5:]], 4),
    "no base64": (lambda all_: [*all_[:5], "*", *all_[6:]], 5),
}


@pytest.mark.parametrize("name", LIES)
def test_the_first_entry_that_does_not_hold_is_named(
    name: str, command: Any, outside: Outside
) -> None:
    lie, index = LIES[name]
    outside.entries = lie(outside.entries)
    ended = command("ledger", "verify", "--json")
    found = json.loads(ended.out)
    assert (ended.status, found["ok"], found["code"]) == (1, False, "bad_ledger")
    assert found["index"] == index
    assert f"ledger entry {index}: " in ended.err
    assert command("ledger", "verify").out == ""


def test_a_head_that_its_musivum_did_not_sign_is_worth_nothing(
    command: Any, outside: Outside
) -> None:
    outside.head["origin"] = Identity(b"o" * 32).peer_id
    ended = command("ledger", "verify", "--json")
    assert (ended.status, json.loads(ended.out)["code"]) == (1, "bad_signature")


def test_whoever_knows_whose_it_has_to_be_says_so(command: Any, outside: Outside) -> None:
    assert told(command, "--peer", MUSIVUM.peer_id)["ok"]
    found = told(command, "--peer", identity(1).peer_id)
    assert (found["ok"], found["index"]) == (False, 0)


def test_where_one_asks_too_fast_one_waits(
    command: Any, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "PAUSE_SECONDS", 0.0)
    outside.busy = 3
    assert told(command)["ok"]
    monkeypatch.setattr(asking, "PATIENCE", 1)
    outside.busy = 3
    assert told(command)["code"] == "too_many_requests"


def test_the_latest_entries_are_listed(command: Any, fake: Any, token_file: Path) -> None:
    work = Work([identity(1)])

    async def paid() -> list[bytes]:
        ledger = Ledger(MUSIVUM, MemoryStore(), lambda: NOW)
        await ledger.settle([work.proof(0)])
        return await ledger.page()

    rows = [entry_body(payload).model_dump(mode="json") for payload in trio.run(paid)]
    fake.say("GET", "/ledger", rows)
    assert json.loads(command("ledger", "show", "--limit", "3", "--json").out) == rows
    assert dict(fake.last.url.params) == {"limit": "3"}
    out = " ".join(command("ledger", "show").out.split())
    assert "0 payment 2027-01-15 08:00:00Z" in out
    assert f"{identity(1).peer_id} +0.5" in out


@pytest.fixture
def kept(home: Path) -> Path:
    """The database of a musivum that runs no more."""
    data = home / ".musivum"
    data.mkdir()
    key = data / "musivum.key"
    key.write_bytes(MUSIVUM.seed)
    key.chmod(0o600)
    file = data / "musivum.db"

    async def written() -> None:
        async with open_store(f"sqlite:///{file}") as store:
            await pay(Ledger(MUSIVUM, store, lambda: NOW))

    trio.run(written)
    return file


def test_a_database_is_checked_where_no_musivum_runs(command: Any, kept: Path) -> None:
    found = told(command, "--offline")
    assert (found["ok"], found["entries"], found["sum"]) == (True, ENTRIES, 0)
    data = kept.read_bytes()
    # One amount of one entry: its hash beside it says so.
    spot = data.rfind(b"payment")
    kept.write_bytes(data[:spot] + b"paymant" + data[spot + 7 :])
    ended = command("ledger", "verify", "--offline", "--json")
    found = json.loads(ended.out)
    assert (ended.status, found["ok"], found["code"]) == (1, False, "store_lost")
    assert "entry" in found["error"]
