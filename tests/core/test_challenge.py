"""A challenge over HTTP: what is signed of it, and that no other answer passes for that."""

from __future__ import annotations

import pytest

from tessella.core.challenge import Challenge, read_challenge
from tessella.core.errors import BadRequest, BadSignature
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.signed_request import NONCE, PEER, answer_text, sign_answer

CALLER, NODE, OTHER = (Identity(letter * 32) for letter in (b"m", b"n", b"o"))
ASKED = Challenge(CALLER.peer_id, bytes(range(16)))
BODY = b'{"peer_id":"x"}'


def test_what_is_signed_has_golden_bytes() -> None:
    assert ASKED.text(b"") == (
        b"tessella-v1\n12D3KooWKBWE61C4wCb8P6p8kMh5R2BCsK9Kw79awp9tmm6uymN1\n"
        b"000102030405060708090a0b0c0d0e0f\np2p_id\n"
        b"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )


@pytest.mark.parametrize("length", [8, 16, 64])
def test_a_challenge_is_read_as_it_was_sent(length: int) -> None:
    asked = Challenge(CALLER.peer_id, bytes(length))
    assert read_challenge(asked.headers()) == asked


def test_without_its_headers_a_call_is_no_challenge() -> None:
    assert read_challenge({"accept": "*/*"}) is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({PEER: None}, PEER),
        ({PEER: ""}, PEER),
        ({PEER: "a\nb"}, PEER),
        ({PEER: "x\n"}, PEER),
        ({PEER: "x" * 65}, PEER),
        ({NONCE: None}, NONCE),
        ({NONCE: "00" * 7}, NONCE),
        ({NONCE: "00" * 65}, NONCE),
        ({NONCE: "0" * 17}, NONCE),
        ({NONCE: "AB" * 16}, NONCE),
        ({NONCE: "zz" * 16}, NONCE),
        ({NONCE: "00" * 16 + "\n"}, NONCE),
    ],
)
def test_a_header_that_is_none_is_named(changes: dict[str, str | None], named: str) -> None:
    sent = {name: value for name, value in (ASKED.headers() | changes).items() if value is not None}
    with pytest.raises(BadRequest, match=f"header {named}"):
        read_challenge(sent)


def test_the_signature_of_the_one_who_was_asked_for_is_taken() -> None:
    ASKED.check(NODE.peer_id, sign_answer(NODE, ASKED.text(BODY)), BODY)


@pytest.mark.parametrize(
    ("signer", "text"),
    [
        (OTHER, ASKED.text(BODY)),
        (NODE, Challenge(OTHER.peer_id, ASKED.nonce).text(BODY)),
        (NODE, Challenge(CALLER.peer_id, bytes(16)).text(BODY)),
        (NODE, ASKED.text(b"another body")),
        (NODE, answer_text(CALLER.peer_id, ASKED.nonce, "", BODY)),
        (NODE, answer_text(CALLER.peer_id, ASKED.nonce, "finish", BODY)),
        (NODE, answer_text(PeerId(""), ASKED.nonce, "p2p_id", BODY)),
    ],
    ids=["key", "caller", "nonce", "body", "hop", "last of a hop", "nobody"],
)
def test_what_was_signed_for_anything_else_is_refused(signer: Identity, text: bytes) -> None:
    with pytest.raises(BadSignature):
        ASKED.check(NODE.peer_id, sign_answer(signer, text), BODY)


@pytest.mark.parametrize("headers", [{}, {"tessella-signature": "ab"}])
def test_an_answer_that_nobody_signed_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(BadSignature, match="did not sign"):
        ASKED.check(NODE.peer_id, headers, BODY)
