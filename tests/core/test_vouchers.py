from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from tessella.core.errors import BadSignature
from tessella.core.identity import Identity
from tessella.core.messages import Commit
from tessella.core.vouchers import Sent, check_voucher, crossing_at, vouch

SENDER, OTHER = Identity(bytes(32)), Identity(bytes(31) + b"\1")
CROSSING = crossing_at(b"ticket", epoch=2, layer=10)
DIGEST = bytes(range(32))
COMMIT = Commit(50, DIGEST, b"marks", b"last")
SENT = Sent(40, COMMIT)
VOUCHER = vouch(SENDER, CROSSING, SENT)


def test_what_is_signed_is_these_bytes() -> None:
    signed = (
        hashlib.blake2b(b"ticket", digest_size=32).digest()
        + bytes.fromhex("0000000000000002" + "000000000000000a")
        + bytes.fromhex("0000000000000028" + "0000000000000032")
        + hashlib.blake2b(DIGEST + b"marks" + b"last", digest_size=32).digest()
    )
    assert SENDER.sign(b"voucher", signed) == VOUCHER
    assert len(VOUCHER) == 64


def test_a_voucher_is_for_its_rows_and_its_session_alone() -> None:
    check_voucher(SENDER.peer_id, CROSSING, SENT, VOUCHER)
    others = [
        (OTHER, CROSSING, SENT, VOUCHER),
        (SENDER, crossing_at(b"another", 2, 10), SENT, VOUCHER),
        (SENDER, replace(CROSSING, epoch=3), SENT, VOUCHER),
        (SENDER, replace(CROSSING, layer=9), SENT, VOUCHER),
        (SENDER, CROSSING, replace(SENT, start=41), VOUCHER),
        (SENDER, CROSSING, Sent(40, replace(COMMIT, stop=51)), VOUCHER),
        (SENDER, CROSSING, Sent(40, replace(COMMIT, digest=DIGEST[::-1])), VOUCHER),
        (SENDER, CROSSING, Sent(40, replace(COMMIT, marks=b"other")), VOUCHER),
        (SENDER, CROSSING, Sent(40, replace(COMMIT, last=b"")), VOUCHER),
        (SENDER, CROSSING, SENT, b""),
        (SENDER, CROSSING, SENT, bytes(64)),
        (SENDER, CROSSING, SENT, SENDER.sign(b"proof", DIGEST)),
    ]
    for sender, crossing, sent, voucher in others:
        with pytest.raises(BadSignature):
            check_voucher(sender.peer_id, crossing, sent, voucher)
