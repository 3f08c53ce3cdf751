"""Settings are checked once, where they are made, and each refusal names its key."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from musivum import config
from musivum.config import MusivumConfig
from tessella.core.errors import BadAddress, BadConfig


def test_defaults_keep_their_own_rules() -> None:
    made = MusivumConfig()
    assert made.offline_after == 30.0
    assert made.key_path == Path.home() / ".musivum" / "musivum.key"


def test_a_key_may_stand_elsewhere(tmp_path: Path) -> None:
    assert MusivumConfig(data=tmp_path).key_path == tmp_path / "musivum.key"
    assert MusivumConfig(data=tmp_path, key=Path("/k")).key_path == Path("/k")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("min_vram_mb", -1),
        ("usable_vram_pct", 0),
        ("usable_vram_pct", 101),
        ("heartbeat_seconds", 0.0),
        ("heartbeat_seconds", 301.0),
        ("heartbeat_seconds", math.nan),
        ("missed_beats", 0),
        ("load_seconds", 0.0),
        ("load_seconds", math.nan),
        ("forget_seconds", -1.0),
        ("max_nodes", 0),
        ("max_nodes", 16385),
        ("max_connections", 0),
        ("max_ticket_tokens", 0),
        ("mint_daily_cap", -1),
        ("mint_daily_cap", 10**9 + 1),
        ("federation_pull_seconds", 0.4),
        ("federation_pull_seconds", 3601.0),
        ("listen", ()),
    ],
)
def test_a_value_beyond_its_rule_is_named(key: str, value: object) -> None:
    changed: dict[str, Any] = {key: value}
    with pytest.raises(BadConfig, match=key):
        MusivumConfig(**changed)


def test_an_address_that_cannot_be_listened_on_is_named() -> None:
    with pytest.raises(BadAddress, match="udp"):
        MusivumConfig(listen=("/ip4/0.0.0.0/udp/1",))


def test_every_field_is_documented() -> None:
    source = Path(config.__file__).read_text()
    for field in fields(MusivumConfig):
        declared = source.index(f"    {field.name}: ")
        after = source[declared:].splitlines()[1]
        assert after.strip().startswith('"""'), field.name
