"""Where nodes may be is decided by where musivum is, unless its operator said."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network

import pytest

from musivum.config import MusivumConfig
from musivum.settings.reach import settled

PUBLIC, LAN = "/ip4/8.8.8.8/tcp/4001", "/ip4/192.168.1.2/tcp/4001"
LOOPBACK = "/ip4/127.0.0.1/tcp/4001"


@pytest.mark.parametrize(
    ("listen", "announce", "private"),
    [
        ((PUBLIC,), (), False),
        ((LAN,), (), True),
        ((LOOPBACK,), (), True),
        ((LAN, PUBLIC), (), False),
        ((LAN,), (PUBLIC,), False),
        ((LAN,), ("/dns4/musivum.example/tcp/443",), False),
    ],
)
def test_a_musivum_with_a_public_address_lists_no_private_ones(
    listen: tuple[str, ...], announce: tuple[str, ...], private: bool
) -> None:
    config = settled(MusivumConfig(listen=listen, announce=announce))
    assert config.allow_private is private


@pytest.mark.parametrize("said", [True, False, (IPv4Network("10.0.0.0/8"),)])
def test_what_the_operator_said_holds(said: bool | tuple[IPv4Network, ...]) -> None:
    config = MusivumConfig(listen=(PUBLIC, LAN), allow_private_addrs=said)
    assert settled(config) == config
    assert config.allow_private == said


def test_a_wildcard_is_what_the_interfaces_are(monkeypatch: pytest.MonkeyPatch) -> None:
    config = MusivumConfig(listen=("/ip4/0.0.0.0/tcp/4001",))
    for found, private in (([PUBLIC, LAN], False), ([LAN, LOOPBACK], True)):
        monkeypatch.setattr("musivum.settings.reach.expand", lambda _, found=found: tuple(found))
        assert settled(config) == replace(config, allow_private_addrs=private)
