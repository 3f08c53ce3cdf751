"""What a value may be, in TOML and in text."""

from __future__ import annotations

import math
from ipaddress import ip_network
from pathlib import Path

import pytest

from tessella.core.addresses import parse_peer
from tessella.core.errors import BadAddress, BadConfig, InputError
from tessella.core.identity import Identity
from tessella.settings.kinds import (
    ADDRS,
    BY_ANNOTATION,
    NETWORKS,
    PATH,
    PEER_IDS,
    PEERS,
    SWITCH,
    SWITCH_OR_NETWORKS,
    TEXT,
    Kind,
    choice,
    number,
    plain,
    whole,
)

PEER = Identity(b"p" * 32).peer_id
ADDR = "/ip4/192.0.2.1/tcp/1"
FULL = f"{ADDR}/p2p/{PEER}"


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (TEXT, "", ""),
        (SWITCH, True, True),
        (PATH, "~/x", Path.home() / "x"),
        (whole(0), 0, 0),
        (whole(1, 4), 4, 4),
        (number(0), 0, 0.0),
        (number(0, open_end=True), 1, 1.0),
        (choice("on", "Q8_0"), "q8_0", "Q8_0"),
        (ADDRS, [ADDR], (ADDR,)),
        (PEERS, [FULL], (parse_peer(FULL),)),
        (PEER_IDS, [PEER], (PEER,)),
        (NETWORKS, ["10.0.0.0/8"], (ip_network("10.0.0.0/8"),)),
        (SWITCH_OR_NETWORKS, False, False),
        (SWITCH_OR_NETWORKS, ["::1"], (ip_network("::1"),)),
    ],
)
def test_a_value_of_its_kind_is_read(kind: Kind, value: object, read: object) -> None:
    found = kind.read(value)
    assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (TEXT, 1),
        (SWITCH, 1),
        (SWITCH, "true"),
        (PATH, ""),
        (PATH, "a\0b"),
        (PATH, "~nobody-has-this-name/x"),
        (whole(0), True),
        (whole(0), 1.0),
        (whole(0), -1),
        (whole(1, 4), 5),
        (number(0), math.nan),
        (number(0), math.inf),
        (number(0), -0.1),
        (number(0, open_end=True), 0),
        (number(0), "1"),
        (choice("on", "off"), "of"),
        (choice("on", "off"), True),
        (ADDRS, ADDR),
        (ADDRS, [1]),
        (NETWORKS, "10.0.0.0/8"),
        (SWITCH_OR_NETWORKS, 1),
    ],
)
def test_a_value_of_another_kind_is_refused(kind: Kind, value: object) -> None:
    with pytest.raises(ValueError, match=r"^$"):
        kind.read(value)


@pytest.mark.parametrize(
    ("kind", "value", "error", "culprit"),
    [
        (ADDRS, ["1.2.3.4:5"], BadAddress, "1.2.3.4:5"),
        (PEERS, [ADDR], BadAddress, ADDR),
        (PEER_IDS, ["x"], BadConfig, "'x'"),
        (NETWORKS, ["10.0.0.1/8"], BadConfig, "10.0.0.1/8"),
    ],
)
def test_what_is_wrong_inside_is_named(
    kind: Kind, value: object, error: type[InputError], culprit: str
) -> None:
    with pytest.raises(error, match=culprit):
        kind.read(value)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (TEXT, "a,b", "a,b"),
        (SWITCH, "Yes", True),
        (SWITCH, "0", False),
        (whole(0), "7", 7),
        (number(0), "1e3", 1000.0),
        (ADDRS, " a , b,", ["a", "b"]),
        (ADDRS, ",", []),
        (SWITCH_OR_NETWORKS, "off", False),
        (SWITCH_OR_NETWORKS, "10.0.0.0/8,::1", ["10.0.0.0/8", "::1"]),
    ],
)
def test_a_text_is_what_toml_would_have(kind: Kind, text: str, value: object) -> None:
    assert kind.from_text(text) == value


@pytest.mark.parametrize(("kind", "text"), [(SWITCH, "maybe"), (whole(0), "1.5"), (number(0), "x")])
def test_a_text_that_cannot_be_is_refused(kind: Kind, text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - which kind it has to be is told by who asks
        kind.from_text(text)


def test_bounds_are_told() -> None:
    assert whole(1, 4).told == "a whole number, 1 to 4"
    assert whole(1).told == "a whole number, at least 1"
    assert number(0, open_end=True).told == "a number, above 0"
    assert choice("on", "off").told == "one of on, off"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ((parse_peer(FULL),), [FULL]),
        (Path("/x"), "/x"),
        ((ip_network("10.0.0.0/8"),), ["10.0.0.0/8"]),
        (None, None),
        (True, True),
        (0.5, 0.5),
    ],
)
def test_a_value_is_written_as_toml_has_it(value: object, written: object) -> None:
    assert plain(value) == written


def test_the_kinds_of_annotations_take_what_is_annotated() -> None:
    assert BY_ANNOTATION["int"].read(1) == 1
    assert BY_ANNOTATION["float"].read(1) == 1.0
