from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadFrame, Refused
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.messages import Open
from tessella.engine.shard import Shard
from tessella.worker.terms import Served, pack_ids, read_terms, unpack_ids

PEERS = [
    PeerAddress(Identity(bytes([at + 1]) * 32).peer_id, ("/ip4/10.0.0.1/tcp/4001",))
    for at in range(3)
]


@given(ids=st.lists(st.integers(0, 259), max_size=50))
def test_ids_come_back_as_they_were(ids: list[int]) -> None:
    assert unpack_ids(pack_ids(ids), 260) == ids


def test_ids_are_little_endian() -> None:
    assert pack_ids([1, 258]) == b"\1\0\0\0\2\1\0\0"


@pytest.mark.parametrize("data", [b"abc", pack_ids([0, 260]), b"\xff\xff\xff\xff"])
def test_ids_that_are_torn_or_outside_the_vocabulary_are_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        unpack_ids(data, 260)


@pytest.mark.parametrize(("place", "after"), [(1, 2), (2, None)])
def test_terms_are_what_one_stage_sees(
    toy_shard: Shard, an_open: Callable[..., Open], place: int, after: int | None
) -> None:
    served = Served(ModelId("toy"), "contract", 64, 2, toy_shard)
    opened = an_open(PEERS, place)
    terms = read_terms(opened, served, PEERS[place].peer_id, PEERS[place - 1].peer_id)
    assert terms.stage.peer_id == PEERS[place].peer_id
    assert terms.entry == PEERS[0].peer_id
    assert terms.after == (opened.chain[after] if after else None)
    assert list(terms.prompt) == [1, 2]
    assert terms.lease.capacity == 64


@pytest.mark.parametrize("dtype", ["f8", "", "x" * 300])
def test_a_session_in_another_element_type_is_refused_and_no_lie(
    toy_shard: Shard, an_open: Callable[..., Open], dtype: str
) -> None:
    served = Served(ModelId("toy"), "contract", 64, 2, toy_shard)
    changes: dict[str, Any] = {"dtype": dtype}
    with pytest.raises(Refused, match=f"no element type '{dtype[:20]}'"):
        read_terms(an_open(PEERS, 1, **changes), served, PEERS[1].peer_id, PEERS[0].peer_id)
