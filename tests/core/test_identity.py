"""One seed is a node: its peer id is libp2p's, its signatures hold for one purpose."""

from __future__ import annotations

import nacl.signing
import pytest
from hypothesis import given
from hypothesis import strategies as st
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.peer.id import ID

from tessella.core.errors import BadSignature
from tessella.core.identity import (
    PURPOSE_TOKEN_GRANT,
    PURPOSE_TRACKER,
    SIGNATURE_BYTES,
    Identity,
    check_signature,
    peer_id_of,
    public_key_of,
)

seeds = st.binary(min_size=32, max_size=32)

# Points whose order divides 8: for such a key one signature fits every message.
SMALL_ORDER = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
]


def test_a_seed_of_zeros_is_this_peer_and_signs_these_bytes() -> None:
    zeros = Identity(bytes(32))
    assert zeros.peer_id == "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"
    assert public_key_of(zeros.peer_id).hex() == (
        "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
    )
    expected = nacl.signing.SigningKey(bytes(32)).sign(b"tessella tracker v1\0payload").signature
    assert zeros.sign(PURPOSE_TRACKER, b"payload") == expected


@given(seeds)
def test_the_peer_id_is_libp2ps(seed: bytes) -> None:
    assert Identity(seed).peer_id == str(ID.from_pubkey(create_new_key_pair(seed).public_key))


@given(seeds)
def test_the_key_is_read_back_out_of_the_id(key: bytes) -> None:
    assert public_key_of(peer_id_of(key)) == key


@given(seeds, st.binary(max_size=100))
def test_what_is_signed_is_verified(seed: bytes, payload: bytes) -> None:
    node = Identity(seed)
    signature = node.sign(PURPOSE_TRACKER, payload)
    assert len(signature) == SIGNATURE_BYTES
    assert check_signature(node.peer_id, PURPOSE_TRACKER, payload, signature) == payload


def test_a_signature_holds_for_its_signer_purpose_and_bytes_only() -> None:
    node, other = Identity(bytes(32)), Identity(bytes([1]) * 32)
    signature = node.sign(PURPOSE_TRACKER, b"payload")
    for signer, purpose, payload, signed in (
        (other.peer_id, PURPOSE_TRACKER, b"payload", signature),
        (node.peer_id, PURPOSE_TOKEN_GRANT, b"payload", signature),
        (node.peer_id, PURPOSE_TRACKER, b"payloae", signature),
        (node.peer_id, PURPOSE_TRACKER, b"payload", signature[:-1]),
        (node.peer_id, PURPOSE_TRACKER, b"payload", signature + b"\0"),
        (node.peer_id, PURPOSE_TRACKER, b"payload", b""),
        (node.peer_id, PURPOSE_TRACKER, b"payload", bytes(64)),
    ):
        with pytest.raises(BadSignature, match=signer):
            check_signature(signer, purpose, payload, signed)


@given(st.integers(0, 511))
def test_no_flipped_bit_passes(bit: int) -> None:
    node = Identity(bytes(32))
    signature = bytearray(node.sign(PURPOSE_TRACKER, b"payload"))
    signature[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BadSignature):
        check_signature(node.peer_id, PURPOSE_TRACKER, b"payload", bytes(signature))


@pytest.mark.parametrize("key", SMALL_ORDER)
@pytest.mark.parametrize("point", SMALL_ORDER)
def test_keys_of_small_order_sign_nothing(key: str, point: str) -> None:
    signer = peer_id_of(bytes.fromhex(key))
    with pytest.raises(BadSignature):
        check_signature(signer, PURPOSE_TRACKER, b"any", bytes.fromhex(point) + bytes(32))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "12D3KooW",
        "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXT0",
        "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXT",
        "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTNN",
        "112D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN",
        "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
        "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTé",
        "z" * 100_000,
    ],
)
def test_other_texts_are_not_peer_ids_and_are_named(text: str) -> None:
    with pytest.raises(BadSignature) as found:
        public_key_of(text)
    assert text[:60] in str(found.value)
    assert len(str(found.value)) < 200


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_seed_has_32_bytes(size: int) -> None:
    with pytest.raises(ValueError, match=f"{size} bytes"):
        Identity(bytes(size))


def test_the_seed_is_not_printed() -> None:
    node = Identity(b"\x41" * 32)
    assert "4141" not in repr(node)
    assert "AAAA" not in repr(node)
    assert node.peer_id in repr(node)
