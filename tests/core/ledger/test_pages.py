"""Pages of entries: whole ones come back, torn ones and those over a cap do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.errors import BadFrame, FrameTooLarge, LocalError
from tessella.core.frames import KIB, MAX_LIST_FRAME
from tessella.core.ledger.entries import MAX_ENTRY
from tessella.core.ledger.pages import (
    MAX_PAGE_BYTES,
    MAX_PAGE_ENTRIES,
    pack_page,
    unpack_page,
)


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=20))
def test_what_was_packed_is_unpacked(payloads: list[bytes]) -> None:
    assert unpack_page(pack_page(payloads)) == payloads


def test_the_bytes_of_a_page_are_these() -> None:
    assert pack_page([b"abc", b"d"]).hex() == "00000003" + "616263" + "00000001" + "64"
    assert pack_page([]) == b""


@given(st.data())
def test_a_torn_page_is_refused_unless_it_is_torn_between_entries(data: st.DataObject) -> None:
    payloads = [b"a", b"bcd", b"ef"]
    page = pack_page(payloads)
    edges = {len(pack_page(payloads[:count])): payloads[:count] for count in range(4)}
    cut = data.draw(st.integers(0, len(page)))
    if cut in edges:
        assert unpack_page(page[:cut]) == edges[cut]
    else:
        with pytest.raises(BadFrame, match="a page that ends"):
            unpack_page(page[:cut])


@pytest.mark.parametrize(
    ("page", "error"),
    [
        pytest.param(bytes(4), BadFrame, id="an entry of no bytes"),
        pytest.param(b"\xff" * 8, FrameTooLarge, id="a length of 4 GiB"),
        pytest.param((MAX_ENTRY + 1).to_bytes(4, "big"), FrameTooLarge, id="a long entry"),
        pytest.param(b"\0\0\0\1x" * (MAX_PAGE_ENTRIES + 1), BadFrame, id="many entries"),
        pytest.param(bytes(MAX_PAGE_BYTES + 1), FrameTooLarge, id="many bytes"),
        pytest.param(b"\0\0\0", BadFrame, id="half a length"),
    ],
)
def test_what_is_no_page_is_refused(page: bytes, error: type[BadFrame]) -> None:
    with pytest.raises(BadFrame) as refusal:
        unpack_page(page)
    assert type(refusal.value) is error


@given(st.binary(max_size=200))
def test_bytes_are_refused_or_are_the_page_of_what_they_hold(data: bytes) -> None:
    try:
        payloads = unpack_page(data)
    except BadFrame:
        return
    assert pack_page(payloads) == data


def test_a_page_of_as_many_of_the_longest_entries_as_may_come_fits_a_frame() -> None:
    payloads = [bytes(MAX_ENTRY)] * MAX_PAGE_ENTRIES
    page = pack_page(payloads)
    assert len(page) + KIB < MAX_PAGE_BYTES == MAX_LIST_FRAME
    assert unpack_page(page) == payloads
    with pytest.raises(LocalError, match="1001 entries"):
        pack_page([b"x"] * (MAX_PAGE_ENTRIES + 1))


@pytest.mark.parametrize("payload", [b"", bytes(MAX_ENTRY + 1)])
def test_what_nobody_would_accept_is_not_packed(payload: bytes) -> None:
    with pytest.raises(LocalError, match=f"{len(payload)} bytes"):
        pack_page([b"x", payload])
