"""A call names who made it, and when, under their signature."""

from __future__ import annotations

from tessella.core.calls import sign_call
from tessella.core.identity import PURPOSE_TRACKER, check_signature
from tessella.core.messages import Accepted, Call, decode
from tests.core.work import NOW, identity


def test_a_call_is_signed_by_who_it_names() -> None:
    caller, nonce = identity(1), b"n" * 16
    signed = sign_call(Accepted(), caller, NOW, nonce)
    check_signature(caller.peer_id, PURPOSE_TRACKER, signed.payload, signed.signature)
    call = decode(signed.payload)
    assert isinstance(call, Call)
    assert (call.peer_id, call.created, call.nonce) == (caller.peer_id, NOW, nonce)
    assert decode(call.message) == Accepted()
