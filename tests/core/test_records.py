"""A node's record: who may have made it, when it holds, and where it lies."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.errors import (
    BadConfig,
    BadFrame,
    BadSignature,
    FrameTooLarge,
    RemoteError,
    StaleRecord,
)
from tessella.core.fields import to_plain
from tessella.core.identity import PURPOSE_TRACKER, Identity
from tessella.core.ids import PeerId
from tessella.core.peers import PeerRow
from tessella.core.records import (
    MAX_RECORD,
    PURPOSE_NODE_RECORD,
    NodeRecord,
    better,
    is_multihash,
    mesh_key,
    model_key,
    node_key,
    open_record,
    peer_of_key,
    seal_record,
    to_row,
)
from tests.core.recorded import NODE, NOW, RECORD

OTHER = Identity(bytes(31) + b"\1")
KEY = node_key(NODE.peer_id)


def sealed(record: NodeRecord = RECORD, signer: Identity = NODE) -> bytes:
    return seal_record(record, signer)


def signed(payload: bytes, purpose: bytes = PURPOSE_NODE_RECORD) -> bytes:
    data: bytes = msgpack.packb([payload, NODE.sign(purpose, payload)], use_bin_type=True)
    return data


def test_what_a_node_sealed_is_opened_under_its_key() -> None:
    assert open_record(sealed(), KEY, NOW) == RECORD


def test_the_bytes_of_a_record_are_these() -> None:
    payload, signature = msgpack.unpackb(sealed())
    assert payload.hex() == (
        "dc0010" + "d934" + NODE.peer_id.encode().hex() + "a16d" + "a163" + "920004" + "08"
        "a7" + b"Healthy".hex() + "91b9" + b"/ip4/203.0.113.7/tcp/4001".hex() + "a3637075"
        "a3663332" + "01" + "cb4004000000000000" + "a0c2" + "07" + "cb412e848000000000"
        "cb404e000000000000"
    )
    assert signature == NODE.sign(b"node record", payload)
    assert KEY == b"/tessella/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"


OVER = replace(RECORD, addrs=RECORD.addrs * 16, device="d" * 2000)


@pytest.mark.parametrize(
    ("data", "key", "now", "error"),
    [
        pytest.param(sealed(), node_key(OTHER.peer_id), NOW, BadSignature, id="foreign key"),
        pytest.param(sealed(signer=OTHER), KEY, NOW, BadSignature, id="signed by another"),
        pytest.param(signed(b"\x91\1", PURPOSE_TRACKER), KEY, NOW, BadSignature, id="purpose"),
        pytest.param(msgpack.packb([b"x", b""]), KEY, NOW, BadSignature, id="unsigned"),
        pytest.param(
            msgpack.packb([msgpack.packb(to_plain(RECORD)), bytes(64)]),
            KEY,
            NOW,
            BadSignature,
            id="zero signature",
        ),
        pytest.param(msgpack.packb(to_plain(RECORD)), KEY, NOW, BadFrame, id="bare"),
        pytest.param(msgpack.packb(["x", "y"]), KEY, NOW, BadFrame, id="text"),
        pytest.param(b"", KEY, NOW, BadFrame, id="empty"),
        pytest.param(b"\xc1", KEY, NOW, BadFrame, id="no msgpack"),
        pytest.param(bytes(MAX_RECORD + 1), KEY, NOW, FrameTooLarge, id="too large"),
        pytest.param(signed(b"\xc1"), KEY, NOW, BadFrame, id="signed rubbish"),
        pytest.param(signed(msgpack.packb([1, 2])), KEY, NOW, BadFrame, id="signed other fields"),
        pytest.param(sealed(), KEY, NOW + 60, StaleRecord, id="expired"),
        pytest.param(sealed(), KEY, NOW - 31, StaleRecord, id="future"),
        pytest.param(sealed(replace(RECORD, life=601.0)), KEY, NOW, StaleRecord, id="long life"),
        pytest.param(sealed(replace(RECORD, life=0.0)), KEY, NOW, StaleRecord, id="no life"),
        pytest.param(sealed(replace(RECORD, life=-1.0)), KEY, NOW, StaleRecord, id="negative life"),
        pytest.param(
            sealed(replace(RECORD, peer_id=OTHER.peer_id)), KEY, NOW, BadFrame, id="of another"
        ),
        pytest.param(sealed(replace(RECORD, status="Great")), KEY, NOW, BadFrame, id="status"),
        pytest.param(sealed(replace(RECORD, total_layers=3)), KEY, NOW, BadFrame, id="layers"),
        pytest.param(sealed(replace(RECORD, queue_depth=-1)), KEY, NOW, BadFrame, id="queue"),
        pytest.param(sealed(replace(RECORD, sequence=-1)), KEY, NOW, BadFrame, id="sequence"),
        pytest.param(sealed(replace(RECORD, addrs=("x",))), KEY, NOW, BadFrame, id="address"),
        pytest.param(
            sealed(replace(RECORD, addrs=RECORD.addrs * 17)), KEY, NOW, BadFrame, id="addresses"
        ),
        pytest.param(sealed(), b"/pk/" + KEY[10:], NOW, BadFrame, id="namespace"),
        pytest.param(sealed(), b"/tessella/x", NOW, BadSignature, id="no peer in the key"),
        pytest.param(sealed(), b"/tessella/\xff", NOW, BadFrame, id="key is no text"),
        pytest.param(sealed(), b"", NOW, BadFrame, id="no key"),
    ],
)
def test_what_is_no_record_of_that_node_at_that_time_is_refused(
    data: bytes, key: bytes, now: float, error: type[RemoteError]
) -> None:
    with pytest.raises(error) as refusal:
        open_record(data, key, now)
    assert type(refusal.value) is error
    assert "\n" not in str(refusal.value)


@given(st.integers(0, len(sealed()) - 1), st.integers(1, 255))
def test_no_changed_byte_passes(place: int, change: int) -> None:
    data = bytearray(sealed())
    data[place] ^= change
    with pytest.raises(RemoteError):
        open_record(bytes(data), KEY, NOW)


@given(st.binary(max_size=300))
def test_rubbish_is_refused_as_the_peers_fault(data: bytes) -> None:
    with pytest.raises(RemoteError):
        open_record(data, KEY, NOW)


def test_a_record_holds_until_its_last_moment() -> None:
    assert open_record(sealed(), KEY, NOW + 59.9)
    assert open_record(sealed(), KEY, NOW - 30)


def test_a_record_that_nobody_would_store_is_not_sealed() -> None:
    with pytest.raises(BadConfig, match="shorten"):
        seal_record(OVER, NODE)


@pytest.mark.parametrize(
    ("changes", "wins"),
    [
        ({"sequence": 8, "made_at": 0.0}, True),
        ({"sequence": 6, "made_at": NOW + 9}, False),
        ({"made_at": NOW + 1}, True),
        ({"made_at": NOW - 1}, False),
        ({}, True),
    ],
)
def test_the_higher_sequence_wins_and_of_equals_the_later(
    changes: dict[str, float], wins: bool
) -> None:
    second = replace(RECORD, **changes)  # type: ignore[arg-type]
    assert better(RECORD, second) is (second if wins else RECORD)


def test_the_keys_are_these() -> None:
    assert model_key("m").hex() == "1220" + hashlib.sha256(b"tessella/model/1\0m").hexdigest()
    with_contract = hashlib.sha256(b"tessella/model/1\0m\0c").hexdigest()
    assert model_key("m", "c").hex() == "1220" + with_contract
    assert mesh_key().hex() == "1220" + hashlib.sha256(b"tessella/mesh/1\0").hexdigest()
    assert all(map(is_multihash, (model_key("m"), model_key("m", "c"), mesh_key())))
    assert not is_multihash(KEY)
    assert peer_of_key(KEY) == NODE.peer_id


def test_a_record_and_a_row_say_the_same() -> None:
    row = to_row(RECORD)
    assert isinstance(row, PeerRow)
    assert row.serves
    assert NodeRecord.of(row, sequence=7, made_at=NOW, life=60.0) == RECORD
    assert RECORD.ends_at == NOW + 60
    assert PeerId(row.peer_id) == NODE.peer_id
