"""A registration is read field by field: what a stranger wrote has to keep every rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from musivum.registration import (
    MAX_ADDRS_CHARS,
    MAX_CLAIM_MB,
    MAX_SLOTS,
    Wish,
    read_registration,
)
from musivum.testing import SMALL, a_registration
from tessella.core.errors import TessellaError
from tessella.core.layers import LayerRange
from tessella.core.messages import Register
from tessella.core.plan import terms_of
from tessella.core.shapes import DType


def read(asked: Register) -> Wish:
    return read_registration(asked, usable_vram_pct=90, min_vram_mb=0)


def test_a_registration_becomes_prices_and_a_wish() -> None:
    wish = read(replace(a_registration(), wanted=LayerRange(2, 5), dtype="f16", slots=2))
    assert wish.terms == terms_of(SMALL, DType.F16, context=256, slots=2, min_vram_mb=0)
    assert (wish.model, wish.wanted, wish.dtype) == ("small", LayerRange(2, 5), DType.F16)


@pytest.mark.parametrize(
    ("field", "value", "code", "named"),
    [
        ("model", "", "bad_frame", "Register.model"),
        ("model", "x" * 201, "bad_frame", "Register.model"),
        ("model", "a\nb", "bad_frame", "Register.model"),
        ("model", "a\x1b[2J", "bad_frame", "Register.model"),
        ("contract", "", "bad_frame", "Register.contract"),
        ("device", "x" * 65, "bad_frame", "Register.device"),
        ("shape", b"{}", "bad_frame", "shape"),
        ("dtype", "q8", "bad_frame", "Register.dtype"),
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
