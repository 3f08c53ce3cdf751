"""The names of things, as types: one id can not be passed where another is meant."""

from __future__ import annotations

from typing import NewType

PeerId = NewType("PeerId", str)
"""A libp2p peer id in base58, `12D3KooW…`: it contains the Ed25519 public key."""

SessionId = NewType("SessionId", bytes)
"""16 random bytes that name one session on every stage of its chain."""

ModelId = NewType("ModelId", str)
"""The name a model is served under, such as `smollm2-135m-instruct` or `org/name`."""

SESSION_ID_BYTES = 16
