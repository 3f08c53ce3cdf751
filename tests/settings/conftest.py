"""The keys of a program that only tests have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tessella.settings.keys import Keys, key, keys_of
from tessella.settings.kinds import OFF, choice, number, whole

PREFIX = "TOY_"


@dataclass(frozen=True)
class Top:
    """What stands at the top."""

    name: str = key("toy", flags=("--name", "--called"), variables=("NAME_OF_TOY",))
    """What it is called. Not empty."""

    home: Path | None = None
    """Where it lives. None is nowhere."""


@dataclass(frozen=True)
class Play:
    """What stands in [play]."""

    hours: float = key(1.0, number(0, open_end=True))
    """How long, in hours."""

    players: int = key(2, whole(1, 4), flags=("--players",))
    """Who plays."""

    mode: str = key(OFF, choice(OFF, "Loud"))
    """How it plays | rests."""


@pytest.fixture(scope="session")
def keys() -> Keys:
    """Two keys at the top, and three in [play]."""
    return Keys(
        keys_of(Top, PREFIX) | keys_of(Play, PREFIX, section="play"),
        prefix=PREFIX,
        others=("TOY_HOME_DIRECTORY", "SECRET_TOKEN"),
    )


@pytest.fixture(scope="session")
def tables() -> tuple[type, type]:
    """The classes that have them."""
    return Top, Play
