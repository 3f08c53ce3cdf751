"""What an operator orders, and what comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from musivum.bodies.operator import MoveBody, Rebalanced, ReputationBody

pytestmark = pytest.mark.usefixtures("token_file")

MOVED = Rebalanced(
    moves=[MoveBody(peer_id="12D3KooWabc", old=(0, 2), new=(4, 6), reason="hole")]
).model_dump(mode="json")
KNOWN = ReputationBody(
    peer_id="12D3KooWabc",
    score=0.75,
    joins=2,
    offline=1,
    reports_made=5,
    reports_confirmed=4,
    accused=3,
    accused_confirmed=0,
    audits_passed=6.5,
    audits_rejected=1.0,
    slashes=0.0,
).model_dump(mode="json")


def test_moves_are_told_from_where_to_where(command: Any, fake: Any) -> None:
    fake.say("POST", "/rebalance", MOVED)
    lines = [line.split() for line in command("rebalance").out.splitlines()]
    assert ["moves:", "1"] in lines
    assert ["12D3KooWabc", "0:2", "4:6", "hole"] in lines
    assert json.loads(command("rebalance", "--json").out) == MOVED


def test_nothing_to_move_is_said(command: Any, fake: Any) -> None:
    fake.say("POST", "/rebalance", {"moves": []})
    assert command("rebalance").out.split() == ["moves:", "0"]


def test_reputation_is_of_one_peer_or_of_all(command: Any, fake: Any) -> None:
    fake.say("GET", "/reputation", [KNOWN])
    lines = [line.split() for line in command("reputation", "12D3KooWabc").out.splitlines()]
    assert ["12D3KooWabc", "0.75", "2", "1", "3", "0", "5", "4", "6.5", "1.0", "0.0"] in lines
    assert dict(fake.last.url.params) == {"peer_id": "12D3KooWabc"}
    assert json.loads(command("reputation", "--all", "--json").out) == [KNOWN]
    assert dict(fake.last.url.params) == {"all": "true"}


@pytest.mark.parametrize("args", [(), ("12D3KooWabc", "--all")])
def test_reputation_of_nobody_or_of_both_is_refused(
    args: tuple[str, ...], command: Any, fake: Any
) -> None:
    ended = command("reputation", *args)
    assert (ended.status, fake.asked) == (1, [])
    assert ended.err == "musivum: bad_request: whose reputation? say PEER, or --all\n"
