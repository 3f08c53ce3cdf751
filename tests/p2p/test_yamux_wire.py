"""Yamux bytes: golden headers, and a parser that does not care how they were cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p.yamux.wire import (
    DATA,
    FIN,
    GO_AWAY,
    PING,
    SYN,
    WINDOW_UPDATE,
    BadYamux,
    Body,
    Header,
    Parser,
    pack,
)


@pytest.mark.parametrize(
    ("header", "golden"),
    [
        (pack(DATA, FIN, 1, 5), "00 00 0004 00000001 00000005"),
        (pack(WINDOW_UPDATE, SYN, 3, 262144), "00 01 0001 00000003 00040000"),
        (pack(PING, SYN, 0, 7), "00 02 0001 00000000 00000007"),
        (pack(GO_AWAY, 0, 0, 1), "00 03 0000 00000000 00000001"),
    ],
)
def test_headers_are_these_bytes(header: bytes, golden: str) -> None:
    assert header == bytes.fromhex(golden)


def parsed(chunks: list[bytes]) -> tuple[list[Header], bytes, int]:
    """Headers, all body bytes, and how often a body was complete."""
    parser = Parser()
    headers: list[Header] = []
    body, complete = b"", 0
    for chunk in chunks:
        for part in parser.feed(chunk):
            if isinstance(part, Body):
                body += part.data
                complete += not part.left
            else:
                headers.append(part)
    return headers, body, complete


@given(st.lists(st.integers(0, 40)), st.lists(st.binary(max_size=30), max_size=6))
def test_frames_are_the_same_however_they_are_cut(cuts: list[int], bodies: list[bytes]) -> None:
    data = b"".join(pack(DATA, 0, 1, len(body)) + body + pack(PING, SYN, 0, 1) for body in bodies)
    chunks, at = [], 0
    for cut in cuts:
        chunks.append(data[at : at + cut])
        at += cut
    chunks.append(data[at:])
    expected = parsed([data])
    assert parsed(chunks) == expected
    assert parsed([bytes([byte]) for byte in data]) == expected
    assert expected[1] == b"".join(bodies)
    assert expected[2] == sum(1 for body in bodies if body)


@pytest.mark.parametrize("bad", [b"\1" + bytes(11), pack(4, 0, 0, 0)])
def test_other_versions_and_kinds_are_refused(bad: bytes) -> None:
    with pytest.raises(BadYamux):
        parsed([bad])
