"""A room of audits in memory, drawn with the same numbers every time."""

from __future__ import annotations

import random
import secrets

import pytest
from trio.testing import MockClock

from tessella.core.ids import PeerId
from tests.musivum.audits.room import Room, a_room


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets that a test can rely on."""
    monkeypatch.setattr(secrets, "token_bytes", random.Random(7).randbytes)


@pytest.fixture
async def room(autojump_clock: MockClock, drawn: None) -> Room:
    """Nobody is in it yet. A test that has it takes its clock as well."""
    return await a_room(autojump_clock)


@pytest.fixture
def worker(room: Room) -> PeerId:
    """A node of the whole model."""
    return room.joins(1)


@pytest.fixture
def auditors(room: Room) -> list[PeerId]:
    """Three others."""
    return [room.joins(number) for number in (11, 12, 13)]
