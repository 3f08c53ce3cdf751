"""A registration is read field by field: what a stranger wrote has to keep every rule."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

import pytest

from musivum.nodes.registration import (
    MAX_ADDRS_CHARS,
    MAX_CLAIM_MB,
    MAX_SLOTS,
    Wish,
    read_registration,
)
from musivum.testing import HOUSE, SMALL, a_registration
from tessella.core.errors import BadAddress, TessellaError
from tessella.core.formats import KvFormat
from tessella.core.layers import LayerRange
from tessella.core.messages import Register
from tessella.core.plan import terms_of
from tessella.core.shapes import DType


def read(asked: Register) -> Wish:
    return read_registration(asked, HOUSE)


def test_a_registration_becomes_prices_and_a_wish() -> None:
    wish = read(replace(a_registration(), wanted=LayerRange(2, 5), dtype="f16", slots=2))
    kv = KvFormat.F32
    assert wish.terms == terms_of(SMALL, DType.F16, context=256, slots=2, kv=kv, min_vram_mb=0)
    assert (wish.model, wish.wanted, wish.dtype) == ("small", LayerRange(2, 5), DType.F16)
    assert (wish.weights, wish.is_canary) == ("f32", False)


def test_a_node_may_say_how_its_weights_are_stored_and_that_it_is_a_trap() -> None:
    wish = read(replace(a_registration(), weights="q4_1", canary=True))
    assert (wish.weights, wish.is_canary) == ("q4_1", True)


@pytest.mark.parametrize(
    ("field", "value", "code", "named"),
    [
        ("model", "", "bad_frame", "Register.model"),
        ("model", "x" * 201, "bad_frame", "Register.model"),
        ("model", "a\nb", "bad_frame", "Register.model"),
        ("model", "a\x1b[2J", "bad_frame", "Register.model"),
        ("contract", "", "bad_manifest", "Register.contract"),
        ("contract", "0" * 64, "bad_manifest", "Register.contract"),
        ("kv", "q5_1", "bad_frame", "Register.kv"),
        ("api_url", "file:///etc/passwd", "bad_address", "neither http nor https"),
        ("api_url", "http://169.254.169.254/", "bad_address", "link-local"),
        ("api_url", "http://a@b/", "bad_address", "host"),
        ("api_url", "http://10.0.0.1:22/", "bad_address", "port"),
        ("addrs", ("/ip4/169.254.0.1/tcp/1",), "bad_address", "link-local"),
        ("addrs", ("/ip4/0.0.0.0/tcp/1",), "bad_address", "no machine"),
        ("addrs", ("/ip4/10.0.0.1/tcp/0",), "bad_address", "port 0"),
        ("addrs", ("/ip6/fd00::1%a\nb/tcp/1",), "bad_address", "cannot be printed"),
        ("addrs", ("/dns4/a\x1b[2J.example/tcp/1",), "bad_address", "cannot be printed"),
        ("device", "x" * 65, "bad_frame", "Register.device"),
        ("shape", b"{}", "bad_frame", "shape"),
        ("dtype", "q8", "bad_frame", "Register.dtype"),
        ("weights", "q5_1", "bad_frame", "Register.weights"),
        ("weights", "Q8_0", "bad_frame", "Register.weights"),
        ("claim_mb", -1, "bad_frame", "Register.claim_mb"),
        ("claim_mb", MAX_CLAIM_MB + 1, "bad_frame", "Register.claim_mb"),
        ("context", 0, "bad_frame", "Register.context"),
        ("slots", 0, "bad_frame", "Register.slots"),
        ("slots", MAX_SLOTS + 1, "bad_frame", "Register.slots"),
        ("wanted", LayerRange(11, 13), "bad_frame", "layers 11:13 of a model of 12"),
        ("addrs", (), "bad_address", "0 addresses"),
        ("addrs", ("/ip4/10.0.0.1/tcp/1",) * 17, "bad_address", "17 addresses"),
        ("addrs", ("/dns4/" + "x" * MAX_ADDRS_CHARS + "/tcp/1",), "bad_address", "longer than"),
        ("addrs", ("/ip4/10.0.0.1/udp/1",), "bad_address", "udp"),
        ("addrs", ("http://10.0.0.1",), "bad_address", "http"),
    ],
)
def test_a_field_beyond_its_rule_is_named(field: str, value: object, code: str, named: str) -> None:
    changes: dict[str, Any] = {field: value}
    with pytest.raises(TessellaError, match=named) as caught:
        read(replace(a_registration(), **changes))
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("allow", "addr", "allowed"),
    [
        (False, "/ip4/10.0.0.1/tcp/1", False),
        (False, "/ip4/127.0.0.1/tcp/1", False),
        (False, "/dns4/localhost/tcp/1", False),
        (False, "/ip4/8.8.8.8/tcp/1", True),
        (False, "/dns4/example.org/tcp/1", True),
        ((IPv4Network("10.1.0.0/16"),), "/ip4/10.1.2.3/tcp/1", True),
        ((IPv4Network("10.1.0.0/16"),), "/ip4/10.2.2.3/tcp/1", False),
        (True, "/ip4/192.168.1.1/tcp/1", True),
    ],
)
def test_private_addresses_are_listed_where_the_mesh_allows_them(
    allow: bool | tuple[IPv4Network, ...], addr: str, allowed: bool
) -> None:
    house = replace(HOUSE, allow_private=allow)
    asked = replace(a_registration(), addrs=(addr,))
    if allowed:
        assert read_registration(asked, house).addrs == (addr,)
    else:
        with pytest.raises(BadAddress, match="allow_private_addrs"):
            read_registration(asked, house)


URL = "https://pod-8080.proxy.example.net"
GLOBAL, INSIDE = "/ip4/8.8.8.8/tcp/1", "/ip4/172.17.0.2/tcp/1"


@pytest.mark.parametrize(
    ("addrs", "kept"),
    [((), ()), ((INSIDE,), ()), ((INSIDE, GLOBAL), (GLOBAL,)), ((GLOBAL,), (GLOBAL,))],
)
def test_beside_a_url_what_leads_nowhere_from_here_is_left_out(
    addrs: tuple[str, ...], kept: tuple[str, ...]
) -> None:
    house = replace(HOUSE, allow_private=False)
    asked = replace(a_registration(), addrs=addrs, api_url=URL)
    assert read_registration(asked, house).addrs == kept
    if kept != addrs or not addrs:
        with pytest.raises(BadAddress):
            read_registration(replace(asked, api_url=""), house)


@pytest.mark.parametrize("addr", ["nowhere", "/ip4/10.0.0.1/udp/1", "/dns4/a\x1b[2J/tcp/1"])
def test_what_is_no_address_is_refused_beside_a_url_too(addr: str) -> None:
    with pytest.raises(BadAddress, match=r"nowhere|udp|printed"):
        read(replace(a_registration(), addrs=(addr,), api_url=URL))
