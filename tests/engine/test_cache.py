from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tessella.core.costs import kv_bytes
from tessella.core.errors import ContextTooLong, PositionGap
from tessella.core.layers import LayerRange
from tessella.core.shapes import DType, ModelShape
from tessella.engine.cache import Cache
from tessella.engine.device import Device

SHAPE = ModelShape(
    family="llama",
    layers=6,
    hidden=8,
    intermediate=16,
    heads=4,
    kv_heads=2,
    head_dim=2,
    vocab=32,
    context=64,
)
LAYERS = LayerRange(2, 4)


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


def new_cache(capacity: int = 8, dtype: DType = DType.F32) -> Cache:
    return Cache(SHAPE, LAYERS, capacity, dtype, Device.CPU)


def rows(*values: float) -> torch.Tensor:
    """One position a value: `[n, kv_heads, head_dim]`, the second head negative."""
    return torch.tensor([[[v, v], [-v, -v]] for v in values])


@pytest.mark.parametrize("dtype", DType)
def test_its_bytes_are_what_the_planner_counts(dtype: DType) -> None:
    assert (
        new_cache(8, dtype).nbytes
        == kv_bytes(SHAPE, 2, 8, dtype)
        == 2 * 2 * 2 * 8 * 2 * (dtype.itemsize)
    )


def test_a_chunk_is_seen_behind_what_was_held_in_each_layer() -> None:
    cache = new_cache()
    for layer in LAYERS:
        cache.append(layer, rows(1 + layer), rows(10 + layer))
    cache.extend(1)
    for layer in LAYERS:
        keys, values = cache.append(layer, rows(50, 60), rows(70, 80))
        assert keys[:, :, 0].tolist() == [[1 + layer, 50, 60], [-1 - layer, -50, -60]]
        assert values[:, :, 1].tolist() == [[10 + layer, 70, 80], [-10 - layer, -70, -80]]
    assert cache.length == 1
    cache.extend(2)
    assert cache.length == 3


def test_rolled_back_positions_are_written_anew() -> None:
    cache = new_cache()
    cache.append(2, rows(1, 2, 3), rows(1, 2, 3))
    cache.extend(3)
    cache.rollback(1)
    keys, _ = cache.append(2, rows(9), rows(9))
    assert keys[0, :, 0].tolist() == [1, 9]


@pytest.mark.parametrize("position", [4, -1])
def test_a_position_beyond_the_length_is_a_gap_that_names_both(position: int) -> None:
    cache = new_cache()
    cache.extend(3)
    with pytest.raises(PositionGap) as caught:
        cache.rollback(position)
    assert (caught.value.position, caught.value.held) == (position, 3)
    assert cache.length == 3


def test_the_last_position_fits_and_the_next_is_refused() -> None:
    cache = new_cache(4)
    cache.extend(4)
    with pytest.raises(ContextTooLong, match=r"4 \+ 1 positions.* is 4"):
        cache.check_room(1)
    with pytest.raises(ContextTooLong):
        cache.extend(1)
    assert cache.length == 4


def test_a_long_cache_commits_no_memory_until_it_is_used() -> None:
    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    try:
        before = resident()
    except FileNotFoundError:
        pytest.skip("this system does not tell resident memory that way")
    cache = new_cache(4_000_000)
    assert cache.nbytes == 256_000_000
    cache.append(2, rows(1), rows(1))
    assert resident() - before < cache.nbytes // 10


def test_a_grown_cache_holds_the_same_and_has_more_room() -> None:
    cache = Cache(SHAPE, LAYERS, 4, DType.F32, Device.CPU)
    keys, values = torch.randn(3, 2, 2), torch.randn(3, 2, 2)
    for layer in LAYERS:
        cache.append(layer, keys + layer, values - layer)
    cache.extend(3)
    grown = cache.grown(9)
    assert (grown.capacity, grown.length) == (9, 3)
    assert grown.nbytes == kv_bytes(SHAPE, len(LAYERS), 9, DType.F32)
    for layer in LAYERS:
        all_keys, all_values = grown.append(layer, keys, values)
        assert torch.equal(all_keys[:, :3], (keys + layer).transpose(0, 1))
        assert torch.equal(all_values[:, :3], (values - layer).transpose(0, 1))
    with pytest.raises(ContextTooLong):
        cache.grown(2)
