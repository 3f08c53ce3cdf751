"""What travels: golden bytes both ways, and every field checked."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core import messages as m
from tessella.core.errors import BadFrame, BadRequest
from tessella.core.frames import MAX_CONTROL_FRAME, NEED, FrameReader, NeedData, pack
from tessella.core.ids import ModelId, PeerId, SessionId
from tessella.core.layers import LayerRange
from tessella.core.tensors import WireTensor
from tests.core.ledger_cases import LEDGER_CASES

SID = SessionId(bytes(range(16)))
SID_HEX = "c410000102030405060708090a0b0c0d0e0f"
STAGE = m.Stage(PeerId("P"), LayerRange(0, 2))

CASES: list[tuple[m.Message, str]] = [
    (m.Fail("busy", "full", True), "0000000d9400a462757379a466756c6cc3"),
    (
        m.Open(
            session_id=SID,
            epoch=0,
            model=ModelId("m"),
            contract="c",
            dtype="f32",
            chain=(STAGE,),
            place=0,
            capacity=9,
            prompt=b"\x01\0\0\0",
            sampling=b"{}",
            entry_addrs=("/a",),
            entry_url="",
            grant=b"g",
            grant_signature=b"s",
            ticket=b"t",
            ticket_signature=b"s",
        ),
        f"00000043dc001101{SID_HEX}00a16da163a3663332"
        "9192a15092000200 09c40401000000c4027b7d91a22f61a0c40167c40173c40174c40173",
    ),
    (
        m.Hidden(SID, 1, 300, WireTensor("bf16", (1, 2), b"abcd"), True, b"v"),
        f"0000002b9702{SID_HEX}01cd012c93a462663136920102c40461626364c3c40176",
    ),
    (m.Progress(SID, 0, 70000, 128), f"0000001c9503{SID_HEX}00ce00011170cc80"),
    (m.End(SID, 0), f"000000159304{SID_HEX}00"),
    (m.Cancel(SID, 2), f"000000159305{SID_HEX}02"),
    (m.Park(SID, 0, 1.5), f"0000001e9406{SID_HEX}00cb3ff8000000000000"),
    (
        m.TokenGrant(SID, 0, PeerId("T"), 2.0),
        f"000000209507{SID_HEX}00a154cb4000000000000000",
    ),
    (m.TokenOpen(b"g", b"s"), "000000089308c40167c40173"),
    (
        m.Token(SID, 0, 5, 7, "é", "", -0.5, (m.Alternative(7, -0.5),)),
        f"000000309909{SID_HEX}000507a2c3a9a0cbbfe0000000000000919207cbbfe0000000000000",
    ),
    (m.Complete(b"{}"), "0000000a940ac4027b7dc400c400"),
    (m.Begun("r", ModelId("m"), 3, 1, (STAGE,)), "00000010970ba172a16d03019192a150920002a0"),
    (m.Delta("a", 1, 0.0, ()), "0000000f950ca16101cb000000000000000090"),
    (
        m.Done("stop", 3, 0.0, 0.5, 0.25, 1.0),
        "0000002c970da473746f7003cb0000000000000000cb3fe0000000000000cb3fd0000000000000cb3ff0000000000000",
    ),
    (m.AskStatus(), "00000002910e"),
    (m.Status(b"{}"), "00000006920fc4027b7d"),
    (m.Signed(b"p", b"s"), "000000089310c40170c40173"),
    (
        m.Call(PeerId("P"), 1.0, b"n", b"m"),
        "000000139511a150cb3ff0000000000000c4016ec4016d",
    ),
    (
        m.Register(
            model=ModelId("m"),
            contract="c",
            shape=b"{}",
            addrs=("/a",),
            claim_mb=512,
            device="cpu",
            dtype="f32",
            context=2048,
            slots=4,
            kv="f32",
            api_url="http://x",
        ),
        "0000002d9f12a16da163c4027b7d91a22f61cd0200a3637075a3663332cd080004a3663332a8687474703a2f2f78c0a0c2",
    ),
    (m.Ready(LayerRange(1, 3)), "000000059213920103"),
    (
        m.Announce("PendingLoad", 1, 2.0, 3, 4),
        "0000001a9614ab50656e64696e674c6f616401cb40000000000000000304",
    ),
    (m.Deregister(), "000000029115"),
    (m.ReportFailure(PeerId("P"), "x"), "000000069316a150a178"),
    (m.Assigned(LayerRange(0, 2), 10.0), "0000000e9317920002cb4024000000000000"),
    (m.Accepted(), "000000029118"),
    (m.AskPeers(ModelId("")), "000000039219a0"),
    (m.Peers(b"[]"), "00000006921ac4025b5d"),
    (m.Ask("peers", b"{}"), "0000000c931ba57065657273c4027b7d"),
    (m.Document(b"{}"), "00000006921cc4027b7d"),
    (m.Operate("t", "rebalance", b"{}"), "00000012941da174a9726562616c616e6365c4027b7d"),
    (m.Assign(LayerRange(0, 2)), "00000005921e920002"),
    *LEDGER_CASES,
]


def frames(chunks: list[bytes]) -> list[m.Message]:
    reader = FrameReader(MAX_CONTROL_FRAME)
    found = []
    for chunk in chunks:
        reader.feed(chunk)
        while not isinstance(body := reader.next_body(), NeedData):
            found.append(m.decode(body))
    assert reader.next_body() is NEED
    reader.close()
    return found


@pytest.mark.parametrize(("message", "golden"), CASES, ids=lambda case: type(case).__name__)
def test_bytes_of_every_kind_both_ways_whole_and_in_pieces(message: m.Message, golden: str) -> None:
    data = bytes.fromhex(golden)
    assert m.encode(message).hex() == data.hex()
    for size in (1, 3, len(data)):
        assert frames([data[i : i + size] for i in range(0, len(data), size)]) == [message]


def test_an_error_that_quotes_a_long_input_still_fits_its_frame() -> None:
    fail = m.Fail.of(BadRequest("é" * 5000))
    assert (fail.code, fail.retry) == ("bad_request", False)
    assert m.decode(m.encode(fail)[4:]) == fail


def test_every_kind_has_golden_bytes() -> None:
    assert {type(message) for message, _ in CASES} == set(m.KINDS)


@pytest.mark.parametrize(
    ("fields", "culprit"),
    [
        ([99], "unknown kind 99"),
        ([-1], "unknown kind -1"),
        (["Hidden"], "unknown kind 'Hidden'"),
        ([True], "unknown kind True"),
        ([4, SID], "End has 2 fields, not 1"),
        ([4, SID, 0, 0], "End has 2 fields, not 3"),
        ([4, "text", 0], "End.session_id: wanted bytes, not str"),
        ([4, SID, True], "End.epoch: wanted an integer"),
        ([4, SID, 1.0], "End.epoch: wanted an integer"),
        ([4, SID, 2**63], "End.epoch: wanted an integer of 64 bits"),
        ([6, SID, 0, float("nan")], "Park.seconds: wanted a finite number"),
        ([6, SID, 0, float("inf")], "Park.seconds: wanted a finite number"),
        ([0, "code", "text", 1], "Fail.retry: wanted bool, not int"),
        ([19, [3, 1]], r"LayerRange: no layer range: \[3, 1\)"),
        ([19, [0, 1, 2]], "LayerRange has 2 fields, not 3"),
        ([19, {"start": 0}], "Ready.layers: wanted an array, not dict"),
        ([2, SID, 0, 0, ["f32", [1, None], b""], True, b""], "WireTensor.shape: wanted an integer"),
    ],
)
def test_a_field_out_of_its_type_is_named(fields: list[Any], culprit: str) -> None:
    with pytest.raises(BadFrame, match=culprit):
        m.decode(pack(fields)[4:])


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats()
    | st.text(max_size=9)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=6),
    max_leaves=12,
)


@given(st.integers(0, len(m.KINDS)), st.lists(PLAIN, max_size=12))
def test_no_fields_make_the_decoder_raise_anything_but_bad_frame(
    kind: int, values: list[Any]
) -> None:
    try:
        message = m.decode(pack([kind, *values])[4:])
    except BadFrame:
        return
    assert m.decode(m.encode(message)[4:]) == message


@given(st.binary(max_size=64))
def test_no_bytes_make_the_decoder_raise_anything_but_bad_frame(body: bytes) -> None:
    with contextlib.suppress(BadFrame):
        m.decode(body)
