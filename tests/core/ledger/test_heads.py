"""A signed head: who may have signed it, and what none may say."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest

from tessella.core.errors import BadFrame, BadSignature, FrameTooLarge, LocalError, RemoteError
from tessella.core.fields import to_plain
from tessella.core.identity import PURPOSE_TRACKER, Identity
from tessella.core.ledger.entries import ZERO_HASH
from tessella.core.ledger.heads import (
    MAX_HEAD,
    PURPOSE_LEDGER_HEAD,
    Head,
    open_head,
    seal_head,
)
from tessella.core.ledger.tree import EMPTY_ROOT

MUSIVUM = Identity(bytes(32))
OTHER = Identity(bytes(31) + b"\1")
HEAD = Head(origin=MUSIVUM.peer_id, size=3, root=b"r" * 32, last=b"l" * 32, at=1_800_000_000.0)
EMPTY = replace(HEAD, size=0, root=EMPTY_ROOT, last=ZERO_HASH)


def signed(payload: bytes, purpose: bytes = PURPOSE_LEDGER_HEAD) -> tuple[bytes, bytes]:
    return payload, MUSIVUM.sign(purpose, payload)


def packed(head: Head) -> bytes:
    data: bytes = msgpack.packb(to_plain(head), use_bin_type=True)
    return data


@pytest.mark.parametrize("head", [HEAD, EMPTY])
def test_what_a_musivum_signed_is_opened(head: Head) -> None:
    payload, signature = seal_head(head, MUSIVUM)
    assert open_head(payload, signature, MUSIVUM.peer_id) == head


def test_the_bytes_of_a_head_are_these() -> None:
    payload, signature = seal_head(HEAD, MUSIVUM)
    assert payload.hex() == (
        "95" + "d934" + MUSIVUM.peer_id.encode().hex() + "03" + "c420" + b"r".hex() * 32
        + "c420" + b"l".hex() * 32 + "cb41dad27480000000"
    )  # fmt: skip
    assert signature == MUSIVUM.sign(b"ledger head", payload)


def test_a_head_made_at_a_whole_second_has_the_same_bytes() -> None:
    assert seal_head(replace(HEAD, at=1_800_000_000), MUSIVUM) == seal_head(HEAD, MUSIVUM)


BROKEN = [
    replace(HEAD, origin=OTHER.peer_id),
    replace(HEAD, size=-1),
    replace(HEAD, root=b""),
    replace(HEAD, last=bytes(33)),
    replace(HEAD, at=-1.0),
    replace(HEAD, size=0),
    replace(EMPTY, root=ZERO_HASH),
    replace(EMPTY, last=EMPTY_ROOT),
]


@pytest.mark.parametrize("head", BROKEN)
def test_what_breaks_a_rule_is_neither_opened_nor_sealed(head: Head) -> None:
    with pytest.raises(BadFrame):
        open_head(*signed(packed(head)), MUSIVUM.peer_id)
    with pytest.raises(LocalError):
        seal_head(head, MUSIVUM)


def test_nobody_signs_the_head_of_another() -> None:
    with pytest.raises(LocalError, match=OTHER.peer_id):
        seal_head(HEAD, OTHER)


PAYLOAD, SIGNATURE = seal_head(HEAD, MUSIVUM)


@pytest.mark.parametrize(
    ("payload", "signature", "origin", "error"),
    [
        pytest.param(PAYLOAD, SIGNATURE, OTHER.peer_id, BadSignature, id="of another"),
        pytest.param(PAYLOAD, bytes(64), MUSIVUM.peer_id, BadSignature, id="unsigned"),
        pytest.param(PAYLOAD, b"", MUSIVUM.peer_id, BadSignature, id="no signature"),
        pytest.param(
            *signed(PAYLOAD, PURPOSE_TRACKER), MUSIVUM.peer_id, BadSignature, id="for another use"
        ),
        pytest.param(b"\xc1", bytes(64), MUSIVUM.peer_id, BadSignature, id="unsigned rubbish"),
        pytest.param(*signed(b"\xc1"), MUSIVUM.peer_id, BadFrame, id="signed rubbish"),
        pytest.param(*signed(msgpack.packb([1])), MUSIVUM.peer_id, BadFrame, id="other fields"),
        pytest.param(bytes(MAX_HEAD + 1), b"", MUSIVUM.peer_id, FrameTooLarge, id="too large"),
        pytest.param(PAYLOAD, SIGNATURE, "nobody", BadSignature, id="of no peer"),
    ],
)
def test_what_is_no_head_of_that_musivum_is_refused(
    payload: bytes, signature: bytes, origin: str, error: type[RemoteError]
) -> None:
    with pytest.raises(error) as refusal:
        open_head(payload, signature, origin)
    assert type(refusal.value) is error
