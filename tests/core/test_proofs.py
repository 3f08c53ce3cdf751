"""A proof speaks for itself: what it may claim, and what makes it worth nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.commitments import DIGEST_BYTES
from tessella.core.errors import (
    BadFrame,
    BadProof,
    BadSignature,
    BadTicket,
    ForeignTicket,
    TessellaError,
    TicketExpired,
)
from tessella.core.layers import LayerRange
from tessella.core.messages import TicketStage
from tessella.core.proofs import (
    MAX_BATCH,
    MAX_BATCH_BYTES,
    MAX_PROOF_BYTES,
    MAX_SKETCH,
    SignedProof,
    pack_batch,
    proof_hash,
    read_claim,
    unpack_batch,
)
from tessella.core.tickets import SETTLE_SECONDS, TICKET_SECONDS
from tests.core.work import MUSIVUM, NOW, Work, committed, identity

WORK = Work([identity(1), identity(2), identity(3)])
ISSUERS = {MUSIVUM.peer_id}


def test_an_honest_proof_claims_its_place_in_the_chain() -> None:
    signed = WORK.proof(1)
    claim = read_claim(signed, ISSUERS, NOW)
    assert (claim.worker, claim.place) == (identity(2).peer_id, 1)
    assert claim.request_id == WORK.request_id
    assert claim.digest == signed.digest == proof_hash(signed.payload)


SHORT, OTHER = committed(1, 49).commit(), committed(1, 50, b"other").commit()
VOUCHER = read_claim(WORK.proof(1), ISSUERS, NOW).proof.voucher
LATE = NOW + TICKET_SECONDS + SETTLE_SECONDS


@pytest.mark.parametrize(
    ("name", "make", "error"),
    [
        ("signed by another worker", lambda: WORK.proof(1, by=identity(2 + 1)), BadSignature),
        ("of a worker outside the chain", lambda: WORK.proof(1, worker=identity(9).peer_id), None),
        ("of more layers", lambda: WORK.proof(1, layers=LayerRange(0, 30)), BadProof),
        ("of more tokens than the ticket has", lambda: WORK.proof(1, 101), BadProof),
        ("of no positions", lambda: WORK.proof(1, 50, start=50), BadProof),
        ("of more output than input", lambda: WORK.proof(1, inputs=SHORT), BadProof),
        ("before the first", lambda: WORK.proof(1, sequence=-1), BadFrame),
        ("after half a hash", lambda: WORK.proof(1, previous=b"half"), BadFrame),
        ("of too much sketch", lambda: WORK.proof(1, sketch=b"s" * (MAX_SKETCH + 1)), BadProof),
        ("too long", lambda: WORK.proof(1, sketch=b"s" * MAX_PROOF_BYTES), BadProof),
        ("of a ticket unsigned", lambda: WORK.proof(1, ticket_signature=bytes(64)), BadSignature),
        ("of rows that nobody vouched for", lambda: WORK.proof(1, voucher=b""), BadSignature),
        ("of other rows than came", lambda: WORK.proof(1, inputs=OTHER), BadSignature),
        ("of another session", lambda: WORK.proof(1, epoch=1, voucher=VOUCHER), BadSignature),
        ("by its own voucher", lambda: WORK.proof(1, sender=identity(2)), BadProof),
        ("of rows from behind", lambda: WORK.proof(1, sender=identity(3)), BadProof),
        ("of ids with a voucher", lambda: WORK.proof(0, voucher=VOUCHER), BadProof),
    ],
)  # fmt: skip
def test_a_proof_that_proves_nothing_is_refused(
    name: str, make: Any, error: type[TessellaError] | None
) -> None:
    with pytest.raises(error or (BadSignature, BadTicket)):
        read_claim(make(), ISSUERS, NOW)


def test_a_spare_may_vouch_for_rows_that_enter_where_its_layers_end() -> None:
    spare = TicketStage(identity(9).peer_id, WORK.ticket.chain[0].layers, "f32/f32/f32")
    work = Work(WORK.workers, changes={"spares": (spare,)})
    assert read_claim(work.proof(1, sender=identity(9)), ISSUERS, NOW).place == 1
    with pytest.raises(BadProof, match="not before its layers"):
        read_claim(work.proof(2, sender=identity(9)), ISSUERS, NOW)


def test_a_worker_of_no_place_in_the_chain_gets_nothing_by_its_own_signature() -> None:
    stranger = identity(9)
    with pytest.raises(BadTicket, match=stranger.peer_id):
        read_claim(WORK.proof(1, worker=stranger.peer_id, by=stranger), ISSUERS, NOW)


def test_a_proof_over_a_ticket_of_another_mesh_is_foreign() -> None:
    work = Work(WORK.workers, issuer=identity(8))
    with pytest.raises(ForeignTicket):
        read_claim(work.proof(0), ISSUERS, NOW)


@pytest.mark.parametrize(
    ("now", "fits"), [(NOW - 59, True), (NOW - 61, False), (LATE - 1, True), (LATE + 1, False)]
)
def test_a_proof_may_come_until_a_day_after_its_ticket_expired(now: float, fits: bool) -> None:
    if fits:
        read_claim(WORK.proof(0), ISSUERS, now)
    else:
        with pytest.raises(TicketExpired):
            read_claim(WORK.proof(0), ISSUERS, now)


def test_a_changed_byte_anywhere_is_seen() -> None:
    signed = WORK.proof(2)
    for at in range(0, len(signed.payload), 41):
        payload = bytearray(signed.payload)
        payload[at] ^= 1
        with pytest.raises((BadSignature, BadFrame, BadTicket)):
            read_claim(replace(signed, payload=bytes(payload)), ISSUERS, NOW)


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_a_batch_is_read_as_it_was_packed(payloads: list[bytes]) -> None:
    proofs = [SignedProof(payload, bytes(64)) for payload in payloads]
    assert unpack_batch(pack_batch(proofs)) == proofs


def test_a_torn_batch_is_refused_wherever_it_is_torn() -> None:
    data = pack_batch([WORK.proof(0), WORK.proof(1)])
    whole = {0, len(pack_batch([WORK.proof(0)])), len(data)}
    for end in range(len(data)):
        if end not in whole:
            with pytest.raises(BadFrame):
                unpack_batch(data[:end])


def test_a_batch_has_an_end() -> None:
    with pytest.raises(BadFrame, match=str(MAX_BATCH_BYTES)):
        unpack_batch(bytes(MAX_BATCH_BYTES + 1))
    with pytest.raises(BadFrame, match=str(MAX_BATCH)):
        unpack_batch(pack_batch([SignedProof(b"", bytes(64))] * (MAX_BATCH + 1)))


def test_the_hash_of_a_proof_is_long_enough_to_stand_for_it() -> None:
    assert len(proof_hash(b"")) == DIGEST_BYTES
