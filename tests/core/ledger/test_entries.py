"""One entry: its bytes, what none may say, and what may follow it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.errors import BadFrame, BadLedger, FrameTooLarge, LocalError
from tessella.core.fields import to_plain
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.ledger.entries import (
    KINDS,
    MAX_ENTRY,
    MAX_LINES,
    MAX_REASON,
    MINT,
    SLASHED,
    ZERO_HASH,
    Entry,
    Line,
    balances,
    entry_hash,
    follows,
    open_entry,
    seal_entry,
)

ORIGIN, WORKER, CLIENT = (Identity(bytes(31) + bytes([n])).peer_id for n in (1, 2, 3))
PEERS = [Identity(bytes(30) + n.to_bytes(2, "big")).peer_id for n in range(100, 116)]
PAYMENT = Entry(
    origin=ORIGIN,
    sequence=7,
    previous=bytes(range(32)),
    kind="payment",
    at=1_800_000_000.5,
    issuer=ORIGIN,
    request_id=bytes(16),
    worker=WORKER,
    lines=(Line(WORKER, 3_000), Line(CLIENT, -1_000), Line(MINT, -2_000)),
)
SLASH = replace(
    PAYMENT,
    kind="slash",
    issuer="",
    request_id=b"",
    worker="",
    reason="audit 12",
    lines=(Line(WORKER, -500), Line(SLASHED, 500)),
)


def packed(entry: Entry) -> bytes:
    """The bytes of an entry that nobody checked."""
    data: bytes = msgpack.packb(to_plain(entry), use_bin_type=True)
    return data


def changed(place: int, value: Any) -> bytes:
    """The payment with one field of another type or value."""
    fields = to_plain(PAYMENT)
    fields[place] = value
    data: bytes = msgpack.packb(fields, use_bin_type=True)
    return data


@pytest.mark.parametrize("entry", [PAYMENT, SLASH, replace(SLASH, kind="epoch", lines=())])
def test_what_was_sealed_is_opened(entry: Entry) -> None:
    assert open_entry(seal_entry(entry)) == entry


def test_the_bytes_of_an_entry_are_these() -> None:
    def text(value: str) -> str:
        return "d934" + value.encode().hex()

    payload = seal_entry(PAYMENT)
    assert payload.hex() == (
        "9a" + text(ORIGIN) + "07" + "c420" + bytes(range(32)).hex() + "a7" + b"payment".hex()
        + "cb41dad27480200000" + text(ORIGIN) + "c410" + bytes(16).hex() + text(WORKER) + "a0"
        + "93" + "92" + text(WORKER) + "cd0bb8" + "92" + text(CLIENT) + "d1fc18"
        + "92" + "a4" + b"mint".hex() + "d1f830"
    )  # fmt: skip
    assert entry_hash(payload) == hashlib.sha256(b"\0" + payload).digest()


def test_an_entry_made_at_a_whole_second_is_opened_too() -> None:
    assert open_entry(seal_entry(replace(PAYMENT, at=5))).at == 5.0


BROKEN = [
    (replace(PAYMENT, kind="gift"), "kind 'gift'"),
    (replace(PAYMENT, origin=PeerId("mint")), "'mint'"),
    (replace(PAYMENT, sequence=-1), "sequence -1"),
    (replace(PAYMENT, previous=bytes(31)), "31 bytes"),
    (replace(PAYMENT, previous=b""), "0 bytes"),
    (replace(PAYMENT, at=-1.0), "-1"),
    (replace(PAYMENT, reason="é" * (MAX_REASON // 2) + "x"), "513 bytes"),
    (replace(PAYMENT, issuer=""), "no peer"),
    (replace(PAYMENT, worker="nobody"), "'nobody'"),
    (replace(PAYMENT, request_id=bytes(15)), "15 bytes"),
    (replace(PAYMENT, kind="reversal", request_id=b""), "reversal"),
    (replace(SLASH, worker=WORKER), "names a proof"),
    (replace(SLASH, request_id=bytes(16)), "names a proof"),
    (replace(SLASH, issuer=ORIGIN), "names a proof"),
    (replace(SLASH, lines=(Line(WORKER, 1),)), "sum to 1"),
    (replace(SLASH, lines=(Line(WORKER, 0),)), "amount 0"),
    (replace(SLASH, lines=(Line("nobody", 1), Line(MINT, -1))), "'nobody'"),
    (replace(SLASH, lines=(Line("", 1), Line(MINT, -1))), "account"),
    (replace(SLASH, lines=(Line(MINT, 1), Line(MINT, -1))), "two lines"),
    (replace(SLASH, lines=(Line(WORKER, 2**62), Line(MINT, -(2**63)))), "amount -9223372036854"),
    (
        replace(SLASH, lines=(Line(WORKER, 2**63 - 1), Line(CLIENT, 2**63 - 1), Line(MINT, 2))),
        "sum to 18446744073709551616",
    ),
    (
        replace(SLASH, lines=(*(Line(peer, 1) for peer in PEERS), Line(MINT, -MAX_LINES))),
        f"{MAX_LINES + 1} lines, over {MAX_LINES}",
    ),
]


@pytest.mark.parametrize(("entry", "culprit"), BROKEN, ids=[culprit for _, culprit in BROKEN])
def test_what_breaks_a_rule_is_neither_opened_nor_sealed(entry: Entry, culprit: str) -> None:
    with pytest.raises(BadFrame, match=culprit) as refusal:
        open_entry(packed(entry))
    assert "\n" not in str(refusal.value)
    with pytest.raises(LocalError, match=culprit):
        seal_entry(entry)


@pytest.mark.parametrize(
    ("entry", "culprit"),
    [
        (replace(PAYMENT, sequence=2**63), "sequence"),
        (replace(PAYMENT, at=float("nan")), "nan"),
        (replace(PAYMENT, at=float("inf")), "inf"),
        (replace(PAYMENT, reason="\ud800"), "half a character"),
        (replace(SLASH, lines=(Line(WORKER, 2**64), Line(MINT, -(2**64)))), "amount"),
    ],
)
def test_what_msgpack_or_the_schema_cannot_carry_is_not_sealed(entry: Entry, culprit: str) -> None:
    with pytest.raises(LocalError, match=culprit):
        seal_entry(entry)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xc1", id="no msgpack"),
        pytest.param(msgpack.packb([1, 2]), id="other fields"),
        pytest.param(changed(1, True), id="a bool as sequence"),
        pytest.param(changed(1, 2**63), id="a sequence over 64 bits"),
        pytest.param(changed(4, 1), id="a time sealed as an integer"),
        pytest.param(changed(4, float("nan")), id="a time that is none"),
        pytest.param(changed(9, [[MINT, 1.0]]), id="an amount with a point"),
        pytest.param(changed(9, [[MINT]]), id="half a line"),
        pytest.param(seal_entry(PAYMENT) + b"\0", id="bytes after it"),
        pytest.param(seal_entry(PAYMENT)[:-1], id="torn"),
        pytest.param(
            seal_entry(PAYMENT).replace(b"\xcd\x0b\xb8", b"\xd1\x0b\xb8"), id="a longer integer"
        ),
    ],
)
def test_bytes_that_no_entry_is_sealed_to_are_refused(payload: bytes) -> None:
    with pytest.raises(BadFrame):
        open_entry(payload)


def test_a_payload_over_the_cap_is_refused_unread() -> None:
    with pytest.raises(FrameTooLarge, match=str(MAX_ENTRY)):
        open_entry(bytes(MAX_ENTRY + 1))


def test_the_longest_entry_is_below_the_cap() -> None:
    amounts = [Line(peer, 2**62) for peer in PEERS[:8]] + [
        Line(peer, -(2**62)) for peer in PEERS[8:]
    ]
    longest = replace(PAYMENT, sequence=2**62, reason="x" * MAX_REASON, lines=tuple(amounts))
    assert len(seal_entry(longest)) <= MAX_ENTRY // 2
    assert open_entry(seal_entry(longest)) == longest


@given(st.binary(max_size=200))
def test_rubbish_is_refused_as_the_peers_fault(data: bytes) -> None:
    with pytest.raises(BadFrame):
        open_entry(data)


@given(st.integers(0, len(seal_entry(PAYMENT)) - 1), st.integers(1, 255))
def test_a_changed_byte_is_refused_or_read_as_what_it_says(place: int, change: int) -> None:
    data = bytearray(seal_entry(PAYMENT))
    data[place] ^= change
    try:
        entry = open_entry(bytes(data))
    except BadFrame:
        return
    assert entry != PAYMENT
    assert seal_entry(entry) == data


@given(
    st.builds(
        replace,
        st.just(PAYMENT),
        sequence=st.integers(0, 2**63 - 1),
        at=st.floats(0, 1e12),
        reason=st.text(max_size=40),
        kind=st.sampled_from(["payment", "reversal"]),
        lines=st.integers(1, 2**63 - 1).map(lambda n: (Line(WORKER, n), Line(MINT, -n))),
    )
)
def test_any_sound_entry_comes_back_as_it_was(entry: Entry) -> None:
    assert open_entry(seal_entry(entry)) == entry


def test_kinds_are_these() -> None:
    assert KINDS == ("payment", "slash", "appeal", "reversal", "epoch")


@pytest.mark.parametrize(
    ("previous", "sequence", "index", "why"),
    [
        (PAYMENT.previous, 6, 6, "missing, entry 7"),
        (PAYMENT.previous, 8, 8, "entry 7 stands here again"),
        (ZERO_HASH, 7, 6, "entry 7 was written after another"),
    ],
)
def test_what_may_not_follow_is_told_by_its_index(
    previous: bytes, sequence: int, index: int, why: str
) -> None:
    with pytest.raises(BadLedger, match=why) as refusal:
        follows(PAYMENT, previous, sequence)
    assert refusal.value.index == index
    assert str(refusal.value).startswith(f"ledger entry {index}: ")


def test_a_first_entry_follows_nothing() -> None:
    first = replace(PAYMENT, sequence=0, previous=ZERO_HASH)
    follows(first, ZERO_HASH, 0)
    follows(PAYMENT, PAYMENT.previous, 7)
    with pytest.raises(BadLedger, match="names one before it") as refusal:
        follows(replace(first, previous=bytes(range(32))), ZERO_HASH, 0)
    assert refusal.value.index == 0


def test_balances_are_the_sum_of_the_lines() -> None:
    found = balances([PAYMENT, SLASH, PAYMENT])
    assert found == {WORKER: 5_500, CLIENT: -2_000, MINT: -4_000, SLASHED: 500}
    assert sum(found.values()) == 0
    assert balances([]) == {}
