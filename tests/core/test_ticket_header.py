from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.errors import BadRequest
from tessella.core.ticket_header import MAX_CHARS, read_ticket_header, ticket_header

SIGNATURE = bytes(range(64))


@given(payload=st.binary(min_size=1, max_size=200), signature=st.binary(min_size=64, max_size=64))
def test_what_is_written_is_read(payload: bytes, signature: bytes) -> None:
    assert read_ticket_header(ticket_header(payload, signature)) == (payload, signature)


def test_a_header_is_two_texts_in_base64url() -> None:
    assert ticket_header(b"\xfb\xff", SIGNATURE).startswith("-_8.AAECAwQ")


@pytest.mark.parametrize(
    "value",
    [
        "",
        ".",
        "abc",
        ticket_header(b"", SIGNATURE),
        ticket_header(b"ticket", SIGNATURE[:-1]),
        ticket_header(b"ticket", SIGNATURE) + "=",
        ticket_header(b"ticket", SIGNATURE) + "\n",
        "A" + ticket_header(b"", SIGNATURE),
        "A" * MAX_CHARS + ticket_header(b"ticket", SIGNATURE),
    ],
)
def test_a_header_that_is_none_is_named(value: str) -> None:
    with pytest.raises(BadRequest, match="header tessella-ticket"):
        read_ticket_header(value)
