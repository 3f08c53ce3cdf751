"""One 32-byte Ed25519 seed is a node: its libp2p peer id and all its signatures.

A peer id is the identity multihash of the protobuf of the public key, in base58, so the key can
be read back out of the id and nobody keeps a table of keys. A signature covers a purpose tag and
the exact bytes sent: it is verified first and parsed after, and one purpose never passes for
another. PyNaCl verifies because it refuses small-order keys, for which one signature fits all.
"""

from __future__ import annotations

import nacl.exceptions
import nacl.signing

from tessella.core.errors import BadSignature
from tessella.core.ids import PeerId

SEED_BYTES = 32
SIGNATURE_BYTES = 64

_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_VALUES = {letter: value for value, letter in enumerate(_ALPHABET)}
# Multihash `identity` (0x00) of 36 bytes: protobuf field 1 = Ed25519 (1), field 2 = 32 bytes.
_ED25519_PREFIX = bytes.fromhex("002408011220")
# 38 bytes in base58 are 52 letters; more is refused before the arithmetic, which is quadratic.
_MAX_LETTERS = 64

PURPOSE_TRACKER = b"tracker"
PURPOSE_TOKEN_GRANT = b"token grant"


def _base58(data: bytes) -> str:
    number = int.from_bytes(data, "big")
    letters = ""
    while number:
        number, rest = divmod(number, 58)
        letters = _ALPHABET[rest] + letters
    zeros = len(data) - len(data.lstrip(b"\0"))
    return "1" * zeros + letters


def _unbase58(text: str) -> bytes:
    number = 0
    for letter in text:
        number = number * 58 + _VALUES[letter]
    zeros = len(text) - len(text.lstrip("1"))
    return b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")


def peer_id_of(public_key: bytes) -> PeerId:
    """The peer id of a 32-byte Ed25519 public key."""
    return PeerId(_base58(_ED25519_PREFIX + public_key))


def public_key_of(peer_id: str) -> bytes:
    """The 32-byte Ed25519 public key inside a peer id. Raises BadSignature that names the id."""
    raw = b""
    if len(peer_id) <= _MAX_LETTERS and all(letter in _VALUES for letter in peer_id):
        raw = _unbase58(peer_id)
    if len(raw) != len(_ED25519_PREFIX) + SEED_BYTES or not raw.startswith(_ED25519_PREFIX):
        raise BadSignature(f"not the peer id of an Ed25519 key: {peer_id[:_MAX_LETTERS]!r}")
    return raw[len(_ED25519_PREFIX) :]


class Identity:
    """A node's own key. Its seed is never printed and never sent."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed of {len(seed)} bytes, wanted {SEED_BYTES}")
        self.seed = seed
        self._key = nacl.signing.SigningKey(seed)
        self.peer_id = peer_id_of(bytes(self._key.verify_key))

    def __repr__(self) -> str:
        return f"Identity({self.peer_id})"

    def sign(self, purpose: bytes, payload: bytes) -> bytes:
        """A 64-byte signature, good for this purpose only."""
        return self._key.sign(_tagged(purpose, payload)).signature


def check_signature(signer: str, purpose: bytes, payload: bytes, signature: bytes) -> bytes:
    """The payload, if that peer signed it for that purpose. Raises BadSignature otherwise."""
    key = nacl.signing.VerifyKey(public_key_of(signer))
    try:
        key.verify(_tagged(purpose, payload), signature)
    except (nacl.exceptions.BadSignatureError, nacl.exceptions.ValueError) as exc:
        raise BadSignature(f"not signed by {signer} as a {purpose.decode()}") from exc
    return payload


def _tagged(purpose: bytes, payload: bytes) -> bytes:
    return b"tessella " + purpose + b" v1\0" + payload
