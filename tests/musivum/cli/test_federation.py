"""What an operator hears of other musivums."""

from __future__ import annotations

import json
from typing import Any

import pytest

from musivum.federation.words import FederationBody, ForgottenBody, PartnerBody

FOLLOWED = PartnerBody(
    peer_id="12D3KooWabc",
    url="https://mesh.example.org",
    state="following",
    size=120,
    behind=3,
    pulled_at=1.5,
    error="",
    slashes=1,
    reversals=2,
    evidence=[],
)
SAID = FederationBody(peer_id="12D3KooWus", pull_seconds=30.0, partners=[FOLLOWED])


def test_every_partner_has_a_line(command: Any, fake: Any) -> None:
    fake.say("GET", "/federation/status", SAID.model_dump(mode="json"))
    out = command("federation", "status").out
    assert ["partners:", "1"] in [line.split() for line in out.splitlines()]
    words = out.split()
    assert {"12D3KooWabc", "following", "120", "3"} <= set(words)
    assert json.loads(command("federation", "status", "--json").out) == SAID.model_dump(mode="json")
    assert "authorization" not in fake.last.headers


@pytest.mark.usefixtures("token_file")
def test_a_partner_is_forgotten_by_the_operator(command: Any, fake: Any) -> None:
    gone = ForgottenBody(peer_id="12D3KooWabc", entries=120).model_dump(mode="json")
    fake.say("POST", "/federation/forget", gone)
    lines = [
        line.split() for line in command("federation", "forget", "12D3KooWabc").out.splitlines()
    ]
    assert ["forgotten", "12D3KooWabc"] in lines
    assert ["entries", "120"] in lines
    assert json.loads(fake.last.content) == {"peer_id": "12D3KooWabc"}
    assert fake.last.headers["authorization"].startswith("Bearer ")
    assert json.loads(command("federation", "forget", "x", "--json").out) == gone
