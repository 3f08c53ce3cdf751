"""What identities own, and what an operator does to them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from musivum.bodies.ledger import CreditsBody, PenaltyBody

pytestmark = pytest.mark.usefixtures("token_file")

PEER = "12D3KooWabc"
ACCOUNT = CreditsBody(
    peer_id=PEER,
    credits=2.5,
    micro=2_500_000,
    tier="standard",
    micro_earned=4_000_000,
    micro_earned_day=1_000_000,
    micro_spent=1_500_000,
    waiting=3,
    held_against="",
).model_dump(mode="json")
FINED = PenaltyBody(
    peer_id=PEER, micro=-1_250_000, balance=0, until=1_800_000_000.0, sequence=7
).model_dump(mode="json")


def lines(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines()]


def test_credits_are_of_one_peer_or_of_all(command: Any, fake: Any) -> None:
    fake.say("GET", "/credits", [ACCOUNT])
    assert [PEER, "2.5", "standard", "4.0", "1.0", "1.5", "3"] in lines(
        command("credits", PEER).out
    )
    assert dict(fake.last.url.params) == {"peer_id": PEER}
    assert json.loads(command("credits", "--all", "--json").out) == [ACCOUNT]
    assert dict(fake.last.url.params) == {"all": "true"}


@pytest.mark.parametrize("args", [(), (PEER, "--all")])
def test_credits_of_nobody_or_of_both_are_refused(
    args: tuple[str, ...], command: Any, fake: Any
) -> None:
    ended = command("credits", *args)
    assert (ended.status, fake.asked) == (1, [])
    assert ended.err == "musivum: bad_request: whose credits? say PEER, or --all\n"


@pytest.mark.parametrize(
    ("flags", "body"),
    [
        ((), {}),
        (("--credits", "1.25"), {"credits": 1.25}),
        (("--days", "0"), {"days": 0.0}),
    ],
)
def test_what_is_not_said_of_a_penalty_is_left_to_musivum(
    flags: tuple[str, ...], body: dict[str, float], command: Any, fake: Any
) -> None:
    fake.say("POST", "/slash", FINED)
    out = command("slash", PEER, "--reason", "echo", *flags).out
    assert json.loads(fake.last.content) == {"peer_id": PEER, "reason": "echo", **body}
    assert ["moved", "-1.25"] in lines(out)
    assert ["barred", "until", "2027-01-15", "08:00:00Z"] in lines(out)


def test_a_penalty_needs_a_reason(command: Any, fake: Any) -> None:
    for name in ("slash", "appeal"):
        assert command(name, PEER).status == 2
    assert fake.asked == []


def test_what_was_taken_is_given_back(command: Any, fake: Any) -> None:
    back = {**FINED, "micro": 1_250_000, "balance": 1_250_000, "until": None}
    fake.say("POST", "/appeal", back)
    assert json.loads(command("appeal", PEER, "--reason", "ours", "--json").out) == back
    assert json.loads(fake.last.content) == {"peer_id": PEER, "reason": "ours"}
    assert ["barred", "until", "-"] in lines(command("appeal", PEER, "--reason", "ours").out)
