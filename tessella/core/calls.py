"""A call: a message, signed with who sends it, when, and a number that is used once."""

from __future__ import annotations

from tessella.core.identity import PURPOSE_TRACKER, Identity
from tessella.core.messages import Call, Message, Signed, seal


def sign_call(message: Message, identity: Identity, now: float, nonce: bytes) -> Signed:
    """A message as a call by its sender; `now` is in seconds since 1970. Good for one use."""
    payload = seal(Call(identity.peer_id, now, nonce, seal(message)))
    return Signed(payload, identity.sign(PURPOSE_TRACKER, payload))
