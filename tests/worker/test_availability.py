"""What an entry says where there is no chain: the layers that are missing, and what would help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
from trio.testing import MockClock

from tessella.core.addresses import PeerAddress
from tessella.core.errors import ModelUnavailable, RemoteFailure
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.peers import PeerRow
from tessella.core.plan import claim_for, terms_of
from tessella.core.shapes import DType, ModelShape
from tessella.engine.shard import Shard
from tessella.worker.availability import LOADING_RETRY_SECONDS, find_chain
from tessella.worker.terms import Served

OpenMesh = Callable[..., Any]
Row = Callable[..., PeerRow]
PEERS = [
    PeerAddress(Identity(bytes([at + 1]) * 32).peer_id, ("/ip4/10.0.0.1/tcp/1",)) for at in range(4)
]
FIRST = PEERS[0].peer_id


@dataclass
class Held:
    """A shard of fewer layers than the real one has; all that is asked of it here."""

    layers: LayerRange
    shape: ModelShape
    dtype: DType = DType.F32


def served(shard: Shard, stop: int, context: int = 64, slots: int = 2) -> Served:
    held = cast("Shard", Held(LayerRange(0, stop), shard.shape))
    return Served(ModelId("toy"), "contract", context, slots, held)


def rows(a_row: Row, *ranges: tuple[int, int, str]) -> list[PeerRow]:
    return [
        a_row(PEERS[at], LayerRange(start, stop), status=status)
        for at, (start, stop, status) in enumerate(ranges)
    ]


def refusal(found: list[PeerRow], terms: Served) -> ModelUnavailable:
    with pytest.raises(ModelUnavailable) as caught:
        find_chain(found, terms, FIRST)
    return caught.value


def test_where_every_layer_is_served_there_is_a_chain(toy_shard: Shard, a_row: Row) -> None:
    found = rows(a_row, (0, 3, "Healthy"), (3, 6, "Healthy"))
    chain = find_chain(found, served(toy_shard, 3), FIRST)
    assert [stage.layers for stage in chain] == [LayerRange(0, 3), LayerRange(3, 6)]


@pytest.mark.parametrize(("context", "slots"), [(64, 2), (4_000_000, 100)])
def test_a_hole_names_the_claim_that_would_repair_it_in_the_nodes_own_terms(
    toy_shard: Shard, a_row: Row, context: int, slots: int
) -> None:
    error = refusal(rows(a_row, (0, 2, "Healthy")), served(toy_shard, 2, context, slots))
    terms = terms_of(toy_shard.shape, DType.F32, context=context, slots=slots)
    claim = claim_for(terms, LayerRange(2, 6))
    assert str(error) == (
        f"layers 2:6 are served by nobody: a node with a claim of {claim} MB would serve them"
    )
    assert (error.retry, error.retry_after) == (True, None)
    assert error.details == {"state": "incomplete", "missing": [[2, 6]], "claim_mb": claim}


def test_what_is_being_loaded_is_said_to_be_and_when_to_ask_again(
    toy_shard: Shard, a_row: Row
) -> None:
    found = rows(a_row, (0, 2, "Healthy"), (2, 4, "PendingLoad"), (4, 6, "Healthy"))
    error = refusal(found, served(toy_shard, 2))
    assert str(error) == "layers 2:4 are still loading"
    assert error.retry_after == LOADING_RETRY_SECONDS
    assert error.details == {"state": "loading", "missing": [[2, 4]]}


def test_a_hole_that_is_loaded_in_part_is_named_in_parts(toy_shard: Shard, a_row: Row) -> None:
    found = rows(a_row, (0, 1, "Healthy"), (2, 4, "PendingLoad"), (5, 6, "Draining"))
    error = refusal(found, served(toy_shard, 1))
    lines = str(error).split("; ")
    assert [line.split(" are ")[0] for line in lines] == ["layers 1:2", "layers 2:4", "layers 4:6"]
    assert ["loading" in line for line in lines] == [False, True, False]
    assert error.details["missing"] == [[1, 2], [2, 4], [4, 6]]
    assert error.retry_after is None, "what loads is not all that is missing"


def test_an_entry_that_nobody_lists_is_named(toy_shard: Shard, a_row: Row) -> None:
    found = [a_row(PEERS[1], LayerRange(0, 6))]
    assert FIRST in str(refusal(found, served(toy_shard, 3)))


@pytest.mark.parametrize("status", ["Healthy", "Draining", "PendingLoad"])
def test_what_an_entry_was_told_of_itself_is_less_than_what_it_knows(
    toy_shard: Shard, a_row: Row, status: str
) -> None:
    found = rows(a_row, (2, 4, status), (2, 6, "Healthy"))
    chain = find_chain(found, served(toy_shard, 2), FIRST)
    assert [stage.layers for stage in chain] == [LayerRange(0, 2), LayerRange(2, 6)]


def test_rows_of_other_tensors_do_not_count(toy_shard: Shard, a_row: Row) -> None:
    found = rows(a_row, (0, 2, "Healthy"))
    found.append(a_row(PEERS[1], LayerRange(2, 6), contract="another"))
    assert "layers 2:6 are served by nobody" in str(refusal(found, served(toy_shard, 2)))


async def test_a_client_reads_what_would_help(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2]) as mesh:
        with pytest.raises(RemoteFailure, match=r"layers 2:6 .* a claim of \d+ MB") as caught:
            await mesh.ask("hello", max_tokens=1)
        assert (caught.value.code, caught.value.retry) == ("model_unavailable", True)
