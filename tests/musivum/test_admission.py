"""Which calls are let in: the order of the checks, and what is remembered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from musivum.admission import NONCE_SECONDS, Nonces, admit
from tessella.core.errors import (
    BadFrame,
    BadSignature,
    NotAuthorized,
    OutOfTurn,
    TessellaError,
    TooManySessions,
)
from tessella.core.identity import PURPOSE_TOKEN_GRANT, PURPOSE_TRACKER, Identity
from tessella.core.messages import AskStatus, Call, Deregister, Message, Signed, seal

NOW = 1_800_000_000.0
NODE = Identity(b"n" * 32)
OTHER = Identity(b"o" * 32)
CALL = Call(NODE.peer_id, NOW, b"nonce 16 bytes..", seal(Deregister()))


def signed(
    message: Message = CALL, *, by: Identity = NODE, purpose: bytes = PURPOSE_TRACKER
) -> Signed:
    payload = seal(message)
    return Signed(payload, by.sign(purpose, payload))


def test_a_call_of_its_own_peer_is_let_in() -> None:
    assert admit(signed(), NODE.peer_id, NOW, Nonces()) == Deregister()


@pytest.mark.parametrize("age", [-30.0, 0.0, 60.0])
def test_the_window_of_time_is_closed_on_both_ends(age: float) -> None:
    assert admit(signed(), NODE.peer_id, NOW + age, Nonces()) == Deregister()


@pytest.mark.parametrize(
    ("one", "error", "named"),
    [
        pytest.param(signed(by=OTHER), BadSignature, "not signed", id="another key"),
        pytest.param(
            signed(purpose=PURPOSE_TOKEN_GRANT), BadSignature, "tracker", id="another purpose"
        ),
        pytest.param(
            replace(signed(), payload=signed().payload + b"\0"),
            BadSignature,
            "not signed",
            id="other bytes",
        ),
        pytest.param(
            replace(signed(), signature=b""), BadSignature, "not signed", id="no signature"
        ),
        pytest.param(
            replace(signed(), signature=bytes(64)), BadSignature, "not signed", id="zeros"
        ),
        pytest.param(signed(Deregister()), BadFrame, "not a Call", id="signed, and no call"),
        pytest.param(
            signed(replace(CALL, peer_id=OTHER.peer_id)),
            NotAuthorized,
            OTHER.peer_id,
            id="another peer's call",
        ),
        pytest.param(
            signed(replace(CALL, created=NOW - 61)), NotAuthorized, "61 s behind", id="too old"
        ),
        pytest.param(
            signed(replace(CALL, created=NOW + 31)), NotAuthorized, "31 s ahead of", id="too new"
        ),
        pytest.param(signed(replace(CALL, nonce=b"short")), BadFrame, "nonce", id="short nonce"),
        pytest.param(signed(replace(CALL, nonce=b"x" * 65)), BadFrame, "nonce", id="long nonce"),
        pytest.param(
            signed(replace(CALL, message=seal(AskStatus()))), OutOfTurn, "AskStatus", id="no call"
        ),
        pytest.param(
            signed(replace(CALL, message=b"\x93")), BadFrame, "plain values", id="torn message"
        ),
    ],
)
def test_a_call_that_breaks_a_rule_is_refused_by_name(
    one: Signed, error: type[TessellaError], named: str
) -> None:
    with pytest.raises(error, match=named):
        admit(one, NODE.peer_id, NOW, Nonces())


def test_a_call_is_let_in_once() -> None:
    nonces = Nonces()
    admit(signed(), NODE.peer_id, NOW, nonces)
    for later in (0.0, 59.0):
        with pytest.raises(NotAuthorized, match="used before"):
            admit(signed(), NODE.peer_id, NOW + later, nonces)


@pytest.mark.parametrize(
    "bad",
    [
        signed(by=OTHER),
        signed(replace(CALL, peer_id=OTHER.peer_id)),
        signed(replace(CALL, created=NOW - 61)),
    ],
)
def test_what_was_refused_is_not_remembered(bad: Signed) -> None:
    nonces = Nonces()
    with pytest.raises(TessellaError):
        admit(bad, NODE.peer_id, NOW, nonces)
    assert len(nonces) == 0
    assert admit(signed(), NODE.peer_id, NOW, nonces) == Deregister()


def test_two_peers_may_use_one_nonce() -> None:
    nonces = Nonces()
    for peer in (NODE, OTHER):
        call = replace(CALL, peer_id=peer.peer_id)
        admit(signed(call, by=peer), peer.peer_id, NOW, nonces)
    assert len(nonces) == 2


def test_nonces_are_kept_three_minutes_and_no_longer() -> None:
    nonces = Nonces()
    nonces.use(NODE.peer_id, b"1", 0.0)
    with pytest.raises(NotAuthorized):
        nonces.use(NODE.peer_id, b"1", NONCE_SECONDS - 1)
    nonces.use(NODE.peer_id, b"1", NONCE_SECONDS)
    assert len(nonces) == 1


def test_full_memory_refuses_and_forgets_nothing() -> None:
    nonces = Nonces(limit=3, per_peer=2)
    nonces.use(NODE.peer_id, b"1", 0.0)
    nonces.use(NODE.peer_id, b"2", 0.0)
    with pytest.raises(TooManySessions):
        nonces.use(NODE.peer_id, b"3", 0.0)
    nonces.use(OTHER.peer_id, b"1", 0.0)
    with pytest.raises(TooManySessions):
        nonces.use(OTHER.peer_id, b"2", 0.0)
    with pytest.raises(NotAuthorized):
        nonces.use(NODE.peer_id, b"1", 0.0)
    nonces.use(NODE.peer_id, b"3", NONCE_SECONDS)
