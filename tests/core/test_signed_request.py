"""A signed request: its text to the byte, and that no part of it can be another's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessella.core.errors import BadRequest, BadSignature
from tessella.core.identity import PURPOSE_TRACKER, Identity, check_signature
from tessella.core.ids import PeerId
from tessella.core.signed_request import (
    HEADERS,
    PURPOSE_HTTP,
    SIGNATURE,
    Head,
    Proof,
    Request,
    answer_text,
    check_answer,
    digest_of,
    query_of,
    read_proof,
    sign_answer,
    sign_request,
    signed_text,
)

CALLER, CALLED = Identity(b"a" * 32), Identity(b"b" * 32)
NOW = 1_800_000_000.5
NONCE = bytes(range(16))
REQUEST = Request(
    "post", "/announce", (("b", "ü&="), ("a", "1"), ("a", "0")), b"{}", CALLED.peer_id
)
TEXT = (
    b"tessella-v1\n"
    b"POST\n"
    b"/announce\n"
    b'[["a","0"],["a","1"],["b","\\u00fc&="]]\n'
    b"12D3KooWCugzopk9fYBy1pvYVi94Qr2y9PL4CjSpYZUaXir3YWb7\n"
    b"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\n"
    b"1800000000.500\n"
    b"000102030405060708090a0b0c0d0e0f\n"
    b"12D3KooWMbbPVGsZYh3ChQjue712NHHGNybRRXwnuSpezYjGbCDS"
)


def golden_headers() -> dict[str, str]:
    return sign_request(REQUEST, CALLER, NOW, NONCE)


def test_the_text_that_is_signed_to_the_byte() -> None:
    found = signed_text(REQUEST, CALLER.peer_id, "1800000000.500", NONCE.hex())
    assert found == TEXT


def test_the_headers_to_the_byte() -> None:
    assert golden_headers() == {
        "tessella-peer": "12D3KooWMbbPVGsZYh3ChQjue712NHHGNybRRXwnuSpezYjGbCDS",
        "tessella-created": "1800000000.500",
        "tessella-nonce": "000102030405060708090a0b0c0d0e0f",
        "tessella-digest": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
        "tessella-signature": "edd7a93b5b319834d9a23b53745d4d77fa9dc08bee4efb278b38f98abea62725"
        "34a8ee506d6dd770f049bf141300cceb76c76426b36c433928f3206572fa7b03",
    }


def test_whoever_is_called_finds_in_the_headers_what_was_signed() -> None:
    headers = golden_headers()
    proof = read_proof(headers)
    assert (proof.peer_id, proof.created, proof.nonce) == (CALLER.peer_id, NOW, NONCE)
    text = signed_text(REQUEST, proof.peer_id, headers["tessella-created"], proof.nonce.hex())
    assert check_signature(proof.peer_id, PURPOSE_HTTP, text, proof.signature) == text
    with pytest.raises(BadSignature):
        check_signature(proof.peer_id, PURPOSE_TRACKER, text, proof.signature)


def verify(request: Request, headers: dict[str, str], proof: Proof) -> None:
    text = signed_text(request, proof.peer_id, headers["tessella-created"], proof.nonce.hex())
    check_signature(proof.peer_id, PURPOSE_HTTP, text, proof.signature)


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "PUT"},
        {"path": "/ready"},
        {"path": "/announce/"},
        {"query": ()},
        {"query": (("a", "0"), ("a", "1"), ("b", "ü&"))},
        {"query": (("a", "0"), ("b", "ü&="))},
        {"body": b"{ }"},
        {"body": b""},
        {"audience": CALLER.peer_id},
    ],
    ids=str,
)
def test_a_request_that_was_changed_on_the_way_is_not_the_signed_one(
    changes: dict[str, Any],
) -> None:
    headers = golden_headers()
    verify(REQUEST, headers, read_proof(headers))
    with pytest.raises(BadSignature):
        verify(replace(REQUEST, **changes), headers, read_proof(headers))


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_of_another_call_is_not_that_of_this_one(header: str) -> None:
    headers = golden_headers()
    other = sign_request(replace(REQUEST, path="/ready", body=b"[]"), CALLED, NOW + 1, bytes(16))
    mixed = {**headers, header: other[header]}
    with pytest.raises(BadSignature):
        verify_head(REQUEST, mixed)


def verify_head(request: Request, headers: dict[str, str]) -> None:
    """As whoever has not read the body yet."""
    proof = read_proof(headers)
    head = Head(request.method, request.path, request.query, proof.digest, request.audience)
    text = signed_text(head, proof.peer_id, headers["tessella-created"], proof.nonce.hex())
    check_signature(proof.peer_id, PURPOSE_HTTP, text, proof.signature)


def test_a_call_is_checked_before_its_body_is_there_and_then_the_body() -> None:
    headers = golden_headers()
    verify_head(REQUEST, headers)
    assert read_proof(headers).digest == digest_of(REQUEST.body) != digest_of(b"{ }")


def test_an_answer_is_that_peers_to_that_call_of_that_caller() -> None:
    text = answer_text(CALLER.peer_id, NONCE, "finish", b"said")
    signed = sign_answer(CALLED, text)
    check_answer(CALLED.peer_id, text, signed)
    changes = [
        answer_text(CALLED.peer_id, NONCE, "finish", b"said"),
        answer_text(CALLER.peer_id, bytes(16), "finish", b"said"),
        answer_text(CALLER.peer_id, NONCE, "", b"said"),
        answer_text(CALLER.peer_id, NONCE, "finish", b"other"),
    ]
    for other in changes:
        with pytest.raises(BadSignature):
            check_answer(CALLED.peer_id, other, signed)
    for signer, headers in (
        (CALLER.peer_id, signed),
        (CALLED.peer_id, {}),
        (CALLED.peer_id, {"tessella-signature": "zz" * 64}),
    ):
        with pytest.raises(BadSignature):
            check_answer(signer, text, headers)


def test_a_call_is_no_answer() -> None:
    text = answer_text(CALLER.peer_id, NONCE, "", b"said")
    with pytest.raises(BadSignature):
        check_answer(CALLED.peer_id, text, {SIGNATURE: CALLED.sign(PURPOSE_HTTP, text).hex()})


PLAIN = st.text(st.characters(codec="utf-8"), max_size=6)
PATHS = st.text(st.sampled_from("/ab\n[]"), min_size=1, max_size=6)
PAIRS = st.lists(st.tuples(PLAIN, PLAIN), max_size=4).map(tuple)
PEERS = st.sampled_from([CALLER.peer_id, CALLED.peer_id])
REQUESTS = st.builds(
    Request,
    method=st.sampled_from(["GET", "POST", "PUT"]),
    path=PATHS,
    query=PAIRS,
    body=st.binary(max_size=6),
    audience=PEERS,
)
PARTS = st.tuples(
    REQUESTS,
    PEERS,
    st.sampled_from(["1.000", "1.001", "2.000"]),
    st.sampled_from(["00" * 8, "01" * 8, "00" * 9]),
)
Parts = tuple[Request, PeerId, str, str]


def said(parts: Parts) -> tuple[object, ...]:
    """All that a text has to tell apart: the query in any order."""
    request, *rest = parts
    return replace(request, query=query_of(request.query)), *rest


@settings(max_examples=50)
@given(PARTS, PARTS)
def test_two_calls_have_one_text_only_if_they_say_the_same(one: Parts, other: Parts) -> None:
    assert (signed_text(*one) == signed_text(*other)) == (said(one) == said(other))


CHANGES: dict[str, st.SearchStrategy[Any]] = {
    "method": st.sampled_from(["GET", "POST", "PUT"]),
    "path": PATHS,
    "query": PAIRS,
    "body": st.binary(max_size=6),
    "audience": PEERS,
}


@settings(max_examples=50)
@given(PARTS, st.sampled_from(sorted(CHANGES)).flatmap(lambda f: st.tuples(st.just(f), CHANGES[f])))
def test_any_change_of_one_part_changes_the_text(parts: Parts, change: tuple[str, Any]) -> None:
    request, *rest = parts
    changes: dict[str, Any] = dict([change])
    other = replace(request, **changes)
    same = said((request, *rest)) == said((other, *rest))  # type: ignore[arg-type]
    assert (signed_text(request, *rest) == signed_text(other, *rest)) == same


@settings(max_examples=50)
@given(REQUESTS, st.randoms(use_true_random=False))
def test_the_order_of_a_query_says_nothing(request: Request, random: Any) -> None:
    shuffled = list(request.query)
    random.shuffle(shuffled)
    other = replace(request, query=tuple(shuffled))
    rest = (CALLER.peer_id, "1.000", "00" * 8)
    assert signed_text(request, *rest) == signed_text(other, *rest)


@given(st.floats(0, 2**52), st.binary(min_size=8, max_size=64))
def test_headers_come_back_as_they_were_meant(now: float, nonce: bytes) -> None:
    proof = read_proof(sign_request(REQUEST, CALLER, now, nonce))
    assert (proof.peer_id, proof.nonce) == (CALLER.peer_id, nonce)
    assert proof.created == pytest.approx(now, abs=0.001)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        *[(header, None) for header in HEADERS],
        *[(header, "") for header in HEADERS],
        ("tessella-peer", "a" * 65),
        ("tessella-peer", "a b"),
        ("tessella-peer", "a\nb"),
        ("tessella-created", "yesterday"),
        ("tessella-created", "-1"),
        ("tessella-created", "1e9"),
        ("tessella-created", "nan"),
        ("tessella-created", "inf"),
        ("tessella-created", ".5"),
        ("tessella-created", "1.2.3"),
        ("tessella-created", " 1"),
        ("tessella-created", "1_000"),
        ("tessella-created", "١"),
        ("tessella-created", str(2**53 + 2)),
        ("tessella-created", "0" * 21),
        ("tessella-nonce", "00" * 7),
        ("tessella-nonce", "00" * 65),
        ("tessella-nonce", "0" * 17),
        ("tessella-nonce", "AB" * 8),
        ("tessella-nonce", "0x" * 8),
        ("tessella-digest", "00" * 31),
        ("tessella-digest", "00" * 33),
        ("tessella-digest", "AB" * 32),
        ("tessella-signature", "00" * 63),
        ("tessella-signature", "00" * 65),
        ("tessella-signature", "zz" * 64),
        ("tessella-signature", "AB" * 64),
    ],
)
def test_a_header_that_is_none_is_refused_by_its_name(header: str, value: str | None) -> None:
    headers = golden_headers()
    if value is None:
        del headers[header]
    else:
        headers[header] = value
    with pytest.raises(BadRequest, match=f"header {header}: "):
        read_proof(headers)


@pytest.mark.parametrize("created", ["0", "1800000000", "1800000000.", "1800000000.123456", "007"])
def test_seconds_may_have_a_fraction(created: str) -> None:
    assert read_proof({**golden_headers(), "tessella-created": created}).created == float(created)
