"""Frames: golden bytes, a reader that does not care how they were cut, and bombs refused."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessella.core.errors import BadFrame, FrameTooLarge
from tessella.core.frames import (
    LENGTH_BYTES,
    MAX_ARRAY,
    MAX_MAP,
    MAX_STR,
    MIB,
    FrameReader,
    NeedData,
    pack,
    unpack,
)

GOLDEN: list[tuple[list[Any], str]] = [
    ([0], "00000002 91 00"),
    ([1, "text", b"\x01\x02"], "0000000b 93 01 a4 74657874 c4 02 0102"),
    ([5, None, True, 1.5], "0000000d 94 05 c0 c3 cb 3ff8000000000000"),
    ([7, [2**32, -1]], "0000000d 92 07 92 cf 0000000100000000 ff"),
]


@pytest.mark.parametrize(("fields", "golden"), GOLDEN)
def test_frames_are_these_bytes(fields: list[Any], golden: str) -> None:
    data = bytes.fromhex(golden)
    assert pack(fields) == data
    assert unpack(data[LENGTH_BYTES:]) == fields


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(max_examples=30)
@given(st.lists(plain, min_size=1, max_size=6))
def test_what_is_packed_is_unpacked(fields: list[Any]) -> None:
    assert unpack(pack(fields)[LENGTH_BYTES:]) == fields


def bodies(reader: FrameReader) -> list[bytes]:
    """Every body that is complete."""
    found = []
    while not isinstance(body := reader.next_body(), NeedData):
        found.append(body)
    return found


@given(st.lists(st.binary(max_size=50), max_size=6), st.lists(st.integers(0, 30)))
def test_a_reader_does_not_care_how_bytes_are_cut(sent: list[bytes], cuts: list[int]) -> None:
    data = b"".join(struct.pack("!I", len(body)) + body for body in sent)
    whole, single, split = FrameReader(50), FrameReader(50), FrameReader(50)
    whole.feed(data)
    assert bodies(whole) == sent
    got = []
    for byte in data:
        single.feed(bytes([byte]))
        got += bodies(single)
    assert got == sent
    got, at = [], 0
    for cut in cuts:
        split.feed(data[at : at + cut])
        got += bodies(split)
        at += cut
    split.feed(data[at:])
    assert got + bodies(split) == sent
    for reader in (whole, single, split):
        reader.close()


@given(st.binary(min_size=1, max_size=50), st.data())
def test_missing_is_what_completes_the_frame(body: bytes, data: st.DataObject) -> None:
    frame = struct.pack("!I", len(body)) + body
    at = data.draw(st.integers(LENGTH_BYTES, len(frame)))
    reader = FrameReader(50)
    reader.feed(frame[:at])
    assert reader.missing == len(frame) - at
    reader.feed(frame[at:])
    assert reader.next_body() == body
    assert reader.missing == LENGTH_BYTES


@pytest.mark.parametrize("length", [51, 2**31, 2**32 - 1])
def test_a_length_over_the_cap_is_refused_before_the_body(length: int) -> None:
    reader = FrameReader(50)
    reader.feed(struct.pack("!I", length))
    with pytest.raises(FrameTooLarge) as found:
        reader.next_body()
    assert (found.value.length, found.value.limit) == (length, 50)
    with pytest.raises(FrameTooLarge):
        _ = reader.missing


def test_the_cap_itself_passes() -> None:
    reader = FrameReader(50)
    reader.feed(struct.pack("!I", 50) + bytes(50))
    assert reader.next_body() == bytes(50)


@pytest.mark.parametrize("rest", [b"\0", b"\0\0\0", b"\0\0\0\2", b"\0\0\0\2\x91"])
def test_an_end_in_the_middle_of_a_frame_is_told(rest: bytes) -> None:
    reader = FrameReader(50)
    reader.feed(rest)
    assert isinstance(reader.next_body(), NeedData)
    with pytest.raises(BadFrame, match="before its frame did"):
        reader.close()


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\xc0"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x90",
        b"\x01",
        b"\xc0",
        msgpack.packb({"kind": 1}),
        msgpack.packb("kind"),
        msgpack.packb([1]) + b"\x00",
        msgpack.packb([1, 2])[:-1],
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        msgpack.packb([[0] * (MAX_ARRAY + 1)]),
        msgpack.packb([{str(n): 0 for n in range(MAX_MAP + 1)}]),
        msgpack.packb(["x" * (MAX_STR + 1)]),
        msgpack.packb([msgpack.ExtType(1, b"x")]),
        b"\x91\xd4\x01\x00",
        msgpack.packb([msgpack.Timestamp(1)]),
        b"\x91\x82\xa1a\x01\xa1a\x02",
        msgpack.packb([{1: 2}]),
        b"\x91\x81\xc0\x01",
        b"\x91\xa2\xff\xfe",
        nested(2000),
        nested(200_000),
    ],
    ids=[
        "nothing",
        "never used byte",
        "no kind",
        "a number",
        "nil",
        "a map",
        "a string",
        "trailing bytes",
        "cut",
        "4 Gi array",
        "4 Gi map",
        "4 GiB string",
        "4 GiB bin",
        "array over the cap",
        "map over the cap",
        "string over the cap",
        "extension",
        "fixed extension",
        "timestamp",
        "a key twice",
        "a number as key",
        "nil as key",
        "not UTF-8",
        "deep",
        "very deep",
    ],
)
def test_anything_but_an_array_of_plain_values_is_refused(body: bytes) -> None:
    with pytest.raises(BadFrame):
        unpack(body)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(body: bytes) -> None:
    with suppress(BadFrame):
        assert unpack(body)


def test_an_array_of_empty_arrays_costs_no_more_than_its_cap() -> None:
    bomb = b"\x91\xdd" + (8 * MIB).to_bytes(4, "big") + b"\x90" * (8 * MIB)
    with pytest.raises(BadFrame):
        unpack(bomb)


def test_a_long_bin_is_what_frames_are_for() -> None:
    data = bytes(8 * MIB)
    assert unpack(pack([2, data])[LENGTH_BYTES:]) == [2, data]


def test_a_frame_that_u32_cannot_count_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 2**32

    monkeypatch.setattr(msgpack, "packb", lambda *a, **k: Huge())
    with pytest.raises(FrameTooLarge):
        pack([1])
