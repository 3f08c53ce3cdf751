"""The ceiling of a prompt: declared, or what the node's own memory holds."""

from __future__ import annotations

import pytest

from tessella.core.errors import BadConfig, ContextTooLong, InputTooLong
from tessella.engine.shard import Shard
from tessella.worker.limits import DECLARED, MEASURED, InputLimits, input_limits


@pytest.mark.parametrize(
    ("positions", "free", "tokens"),
    [
        (1000, None, 99),
        (1000, 50, 50),
        (50, 1000, 50),
        (1000, 1000, 99),
        (1000, 0, 1),
    ],
    ids=["context", "memory", "budget", "context again", "nothing"],
)
def test_what_is_measured_fits_context_budget_and_memory(
    toy_shard: Shard, positions: int, free: int | None, tokens: int
) -> None:
    each = toy_shard.kv_bytes(1, toy_shard.layers)
    limits = input_limits(
        toy_shard,
        context=100,
        kv_bytes=positions * each,
        free_bytes=None if free is None else free * each,
        declared=None,
    )
    assert (limits.max_input_tokens, limits.source) == (tokens, MEASURED)


def test_what_is_declared_stands_and_fits_the_context(toy_shard: Shard) -> None:
    limits = input_limits(toy_shard, context=100, kv_bytes=1, free_bytes=1, declared=70)
    assert (limits.max_input_tokens, limits.source) == (70, DECLARED)
    with pytest.raises(BadConfig, match=r"max_input_tokens: 100 tokens, .* context is 100"):
        input_limits(toy_shard, context=100, kv_bytes=1, free_bytes=1, declared=100)


def test_a_prompt_is_refused_by_the_number_that_it_breaks() -> None:
    limits = InputLimits(context_size=100, max_input_tokens=70, source=DECLARED)
    limits.check(70)
    with pytest.raises(InputTooLong, match="71 tokens, this node takes 70") as ours:
        limits.check(71)
    with pytest.raises(ContextTooLong, match="100 tokens, this node's context is 100") as model:
        limits.check(100)
    assert (ours.value.status, model.value.status) == (413, 400)
