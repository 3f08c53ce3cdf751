"""Which calls are let in: the order of the checks, and what is remembered."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from musivum.admission import Admission, Nonces, SignedCall
from tessella.core.call_rules import NONCE_SECONDS
from tessella.core.errors import (
    BadFrame,
    BadSignature,
    CallReplayed,
    ClockSkew,
    TessellaError,
    TooManyRequests,
    WorkerNotAuthorized,
)
from tessella.core.identity import PURPOSE_TOKEN_GRANT, PURPOSE_TRACKER, Identity
from tessella.core.ids import PeerId

NOW = 1_800_000_000.0
NODE = Identity(b"n" * 32)
OTHER = Identity(b"o" * 32)
PAYLOAD = b"what was signed"


def a_call(by: Identity = NODE, **changes: object) -> SignedCall:
    call = SignedCall(
        peer_id=NODE.peer_id,
        created=NOW,
        nonce=b"nonce 16 bytes..",
        purpose=PURPOSE_TRACKER,
        payload=PAYLOAD,
        signature=by.sign(PURPOSE_TRACKER, PAYLOAD),
    )
    return replace(call, **changes)  # type: ignore[arg-type]


def admission(allow: tuple[PeerId, ...] | None = None, block: tuple[PeerId, ...] = ()) -> Admission:
    return Admission(allow=allow, block=block, started=NOW - 1000)


@pytest.mark.parametrize("age", [-30.0, 0.0, 60.0])
@pytest.mark.parametrize("overheard", [True, False])
def test_a_call_of_its_own_peer_is_let_in_from_end_to_end_of_the_window(
    age: float, overheard: bool
) -> None:
    admission().admit(a_call(), NOW + age, overheard=overheard)


@pytest.mark.parametrize(
    ("call", "error", "named"),
    [
        pytest.param(a_call(by=OTHER), BadSignature, "not signed", id="another key"),
        pytest.param(
            a_call(signature=NODE.sign(PURPOSE_TOKEN_GRANT, PAYLOAD)),
            BadSignature,
            "tracker",
            id="another purpose",
        ),
        pytest.param(a_call(payload=PAYLOAD + b"\0"), BadSignature, "not signed", id="other bytes"),
        pytest.param(a_call(signature=b""), BadSignature, "not signed", id="no signature"),
        pytest.param(a_call(signature=bytes(64)), BadSignature, "not signed", id="zeros"),
        pytest.param(a_call(peer_id=OTHER.peer_id), BadSignature, OTHER.peer_id, id="not its key"),
        pytest.param(a_call(peer_id=PeerId("x")), BadSignature, "peer id", id="no key at all"),
        pytest.param(a_call(created=NOW - 61), ClockSkew, "61 s behind", id="too old"),
        pytest.param(a_call(created=NOW + 31), ClockSkew, "31 s ahead of", id="too new"),
        pytest.param(a_call(nonce=b"short"), BadFrame, "nonce", id="short nonce"),
        pytest.param(a_call(nonce=b"x" * 65), BadFrame, "nonce", id="long nonce"),
    ],
)
def test_a_call_that_breaks_a_rule_is_refused_by_name_and_not_remembered(
    call: SignedCall, error: type[TessellaError], named: str
) -> None:
    guard = admission()
    with pytest.raises(error, match=named):
        guard.admit(call, NOW, overheard=False)
    assert len(guard.nonces) == 0
    guard.admit(a_call(), NOW, overheard=False)


def test_policy_is_asked_before_the_clock_and_the_clock_before_the_signature() -> None:
    everything_wrong = a_call(by=OTHER, created=NOW - 100)
    with pytest.raises(WorkerNotAuthorized):
        admission(allow=()).admit(everything_wrong, NOW, overheard=False)
    with pytest.raises(ClockSkew):
        admission().admit(everything_wrong, NOW, overheard=False)


@pytest.mark.parametrize(
    ("allow", "block", "said"),
    [
        ((), (), "private"),
        ((OTHER.peer_id,), (), "private"),
        (None, (NODE.peer_id,), "blocked"),
        ((NODE.peer_id,), (NODE.peer_id,), "blocked"),
    ],
)
def test_a_private_mesh_lets_in_whom_it_lists(
    allow: tuple[PeerId, ...] | None, block: tuple[PeerId, ...], said: str
) -> None:
    with pytest.raises(WorkerNotAuthorized, match=said):
        admission(allow, block).admit(a_call(), NOW, overheard=False)
    admission((NODE.peer_id,), (OTHER.peer_id,)).admit(a_call(), NOW, overheard=False)


def test_a_call_is_let_in_once() -> None:
    guard = admission()
    guard.admit(a_call(), NOW, overheard=False)
    for later in (0.0, 59.0):
        with pytest.raises(CallReplayed):
            guard.admit(a_call(), NOW + later, overheard=False)


def test_what_others_may_have_heard_is_not_taken_from_before_the_start() -> None:
    guard = Admission(allow=None, block=(), started=NOW)
    before = a_call(created=NOW - 1)
    with pytest.raises(ClockSkew, match="before this musivum began"):
        guard.admit(before, NOW + 5, overheard=True)
    guard.admit(before, NOW + 5, overheard=False)


def test_two_peers_may_use_one_nonce() -> None:
    nonces = Nonces()
    for peer in (NODE, OTHER):
        nonces.use(peer.peer_id, b"1", NOW)
    assert len(nonces) == 2


def test_nonces_are_kept_three_minutes_and_not_four() -> None:
    nonces = Nonces()
    nonces.use(NODE.peer_id, b"1", 0.0)
    with pytest.raises(CallReplayed):
        nonces.use(NODE.peer_id, b"1", NONCE_SECONDS - 1)
    nonces.use(NODE.peer_id, b"1", NONCE_SECONDS + 60)
    assert len(nonces) == 1


def test_full_memory_refuses_and_forgets_nothing() -> None:
    nonces = Nonces(limit=3, per_peer=2, share=1)
    nonces.use(NODE.peer_id, b"1", 0.0)
    nonces.use(NODE.peer_id, b"2", 0.0)
    with pytest.raises(TooManyRequests):
        nonces.use(NODE.peer_id, b"3", 0.0)
    nonces.use(OTHER.peer_id, b"1", 0.0)
    with pytest.raises(TooManyRequests):
        nonces.use(OTHER.peer_id, b"2", 0.0)
    with pytest.raises(CallReplayed):
        nonces.use(NODE.peer_id, b"1", 0.0)
    nonces.use(NODE.peer_id, b"3", NONCE_SECONDS + 60)


def test_nonces_that_come_all_the_time_are_forgotten_all_the_time() -> None:
    nonces = Nonces(limit=1000, share=1)
    for second in range(2000):
        nonces.use(NODE.peer_id, str(second).encode(), float(second))
        assert len(nonces) <= NONCE_SECONDS + 31


def test_many_keys_leave_room_for_nodes_that_call_as_they_should() -> None:
    nonces = Nonces(limit=4096, per_peer=512)
    for key in range(500):
        with contextlib.suppress(TooManyRequests):
            for call in range(512):
                nonces.use(PeerId(str(key)), b"%d" % call, NOW)
    assert len(nonces) < 4096
    nonces.use(NODE.peer_id, b"1", NOW)
