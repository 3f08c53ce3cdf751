from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch

from tessella.core.costs import kv_bytes, shard_bytes
from tessella.core.errors import (
    BadRequest,
    BadTensor,
    BadWeights,
    ContextTooLong,
    LocalError,
    NotFinite,
    PositionGap,
)
from tessella.core.layers import LayerRange
from tessella.core.parameters import layer_parameters, parameters_of
from tessella.core.shapes import DType
from tessella.core.tensors import WireTensor
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.device import Device
from tessella.engine.shard import Shard, load_shard

if TYPE_CHECKING:
    from tests.engine.conftest import Tiny

CUTS = [LayerRange(a, b) for a in range(4) for b in range(a + 1, 5)]
EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


def load(checkpoint: Checkpoint, layers: LayerRange, dtype: DType = DType.F32) -> Shard:
    return load_shard(checkpoint, layers, device=Device.CPU, dtype=dtype)


@pytest.fixture
def middle(tiny_named: Callable[[str], Tiny]) -> Shard:
    return load(tiny_named("llama tied").checkpoint(), LayerRange(1, 3))


def nothing() -> None: ...


@pytest.mark.parametrize("dtype", DType)
@pytest.mark.parametrize("name", ["llama tied", "llama untied", "llama biased", "qwen2 tied"])
def test_every_range_holds_exactly_the_bytes_that_were_priced(
    tiny_named: Callable[[str], Tiny], name: str, dtype: DType
) -> None:
    tiny = tiny_named(name)
    for layers in CUTS:
        shard = load(tiny.checkpoint(), layers, dtype)
        assert shard.weight_bytes == shard_bytes(tiny.shape, layers, dtype)


@pytest.mark.parametrize(
    ("name", "layers", "ends"),
    [
        ("llama tied", LayerRange(0, 2), {EMBEDDING}),
        ("llama tied", LayerRange(1, 3), set()),
        ("llama tied", LayerRange(2, 4), {NORM, EMBEDDING}),
        ("llama tied", LayerRange(0, 4), {NORM, EMBEDDING}),
        ("llama untied", LayerRange(2, 4), {NORM, HEAD}),
        ("llama untied", LayerRange(0, 4), {EMBEDDING, NORM, HEAD}),
    ],
)
def test_only_the_tensors_of_the_range_are_read_and_each_once(
    tiny_named: Callable[[str], Tiny], name: str, layers: LayerRange, ends: set[str]
) -> None:
    tiny = tiny_named(name)
    checkpoint = tiny.checkpoint()
    load(checkpoint, layers)
    inner = {key for layer in layers for key, _ in layer_parameters(tiny.shape, layer)}
    assert sorted(checkpoint.reads) == sorted(inner | ends)


def test_a_whole_shard_tells_every_parameter_with_its_shape(tiny: Tiny) -> None:
    shard = load(tiny.checkpoint(), tiny.shape.whole, DType.BF16)
    assert {each.name: each.shape for each in shard.tensors} == parameters_of(tiny.shape)
    assert all(each.dtype is DType.BF16 for each in shard.tensors)
    assert sum(each.nbytes for each in shard.tensors) == shard.weight_bytes


def test_the_ends_know_what_they_hold(tiny_named: Callable[[str], Tiny]) -> None:
    checkpoint = tiny_named("llama untied").checkpoint()
    held = [load(checkpoint, LayerRange(*cut)) for cut in ((0, 1), (1, 3), (3, 4), (0, 4))]
    assert [shard.holds_embedding for shard in held] == [True, False, False, True]
    assert [shard.holds_head for shard in held] == [False, False, True, True]


def test_progress_rises_to_the_whole(tiny_named: Callable[[str], Tiny]) -> None:
    tiny = tiny_named("qwen2 untied")
    told: list[tuple[int, int]] = []
    load_shard(
        tiny.checkpoint(),
        LayerRange(1, 4),
        device=Device.CPU,
        dtype=DType.F32,
        on_progress=lambda held, total: told.append((held, total)),
    )
    assert [held for held, _ in told] == sorted({held for held, _ in told})
    assert told[-1] == (shard_bytes(tiny.shape, LayerRange(1, 4), DType.F32),) * 2


def test_a_missing_tensor_is_named(tiny_named: Callable[[str], Tiny]) -> None:
    checkpoint = tiny_named("llama tied").checkpoint()
    checkpoint._held = {k: v for k, v in checkpoint._held.items() if "2.mlp.up" not in k}
    with pytest.raises(BadWeights, match=r"model\.layers\.2\.mlp\.up_proj\.weight"):
        load(checkpoint, LayerRange(1, 3))


def test_a_range_beyond_the_model_is_ours_to_avoid(tiny_named: Callable[[str], Tiny]) -> None:
    with pytest.raises(LocalError, match="3:5 of a model of 4"):
        load(tiny_named("llama tied").checkpoint(), LayerRange(3, 5))


def test_a_subrange_of_a_shard_computes_as_a_shard_of_its_own(
    tiny_named: Callable[[str], Tiny],
) -> None:
    checkpoint = tiny_named("qwen2 tied").checkpoint()
    whole, inner = load(checkpoint, LayerRange(0, 4)), LayerRange(1, 3)
    apart = load(checkpoint, inner)
    x = torch.randn(5, 32)
    ours = whole.forward(x, whole.open_cache(8, inner), 0, inner, nothing)
    theirs = apart.forward(x, apart.open_cache(8, inner), 0, inner, nothing)
    assert torch.equal(ours, theirs)


def test_the_cache_is_priced_as_it_is_opened(middle: Shard) -> None:
    cache = middle.open_cache(10, LayerRange(2, 3))
    assert cache.nbytes == middle.kv_bytes(10, LayerRange(2, 3))
    assert cache.nbytes == kv_bytes(middle.shape, 1, 10, DType.F32)


def test_a_position_beyond_what_is_held_is_refused_and_changes_nothing(middle: Shard) -> None:
    cache = middle.open_cache(8, middle.layers)
    middle.forward(torch.randn(3, 32), cache, 0, middle.layers, nothing)
    with pytest.raises(PositionGap) as caught:
        middle.forward(torch.randn(1, 32), cache, 4, middle.layers, nothing)
    assert (caught.value.position, caught.value.held, cache.length) == (4, 3, 3)


def test_the_context_can_be_filled_and_not_overrun(middle: Shard) -> None:
    cache = middle.open_cache(8, middle.layers)
    middle.forward(torch.randn(8, 32), cache, 0, middle.layers, nothing)
    assert cache.length == 8
    with pytest.raises(ContextTooLong):
        middle.forward(torch.randn(1, 32), cache, 8, middle.layers, nothing)
    with pytest.raises(ContextTooLong):
        middle.forward(torch.randn(3, 32), cache, 6, middle.layers, nothing)


def test_work_that_is_stopped_leaves_the_cache_at_its_position(middle: Shard) -> None:
    cache = middle.open_cache(8, middle.layers)
    middle.forward(torch.randn(4, 32), cache, 0, middle.layers, nothing)

    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        middle.forward(torch.randn(2, 32), cache, 3, middle.layers, stop)
    assert cache.length == 3


def test_progress_is_told_after_each_layer(middle: Shard) -> None:
    told: list[int] = []
    cache = middle.open_cache(8, middle.layers)
    middle.forward(torch.randn(2, 32), cache, 0, middle.layers, lambda: told.append(1))
    assert len(told) == 2


def test_the_input_of_a_stage_is_not_written_to(middle: Shard) -> None:
    x = torch.randn(2, 32, requires_grad=True)
    before = x.detach().clone()
    y = middle.forward(x, middle.open_cache(8, middle.layers), 0, middle.layers, nothing)
    assert torch.equal(x.detach(), before)
    assert not y.requires_grad


@pytest.mark.parametrize(
    ("x", "layers"),
    [
        (torch.zeros(0, 32), LayerRange(1, 3)),
        (torch.zeros(1, 31), LayerRange(1, 3)),
        (torch.zeros(32), LayerRange(1, 3)),
        (torch.zeros(1, 32).half(), LayerRange(1, 3)),
        (torch.zeros(1, 32), LayerRange(1, 2)),
        (torch.zeros(1, 32), LayerRange(1, 4)),
    ],
)
def test_what_does_not_fit_the_shard_is_a_bug_of_ours(
    middle: Shard, x: torch.Tensor, layers: LayerRange
) -> None:
    with pytest.raises(LocalError):
        middle.forward(x, middle.open_cache(8, middle.layers), 0, layers, nothing)


def test_a_middle_shard_has_neither_embedding_nor_head(middle: Shard) -> None:
    with pytest.raises(LocalError, match="no embedding"):
        middle.embed([1])
    with pytest.raises(LocalError, match="no head"):
        middle.logits(torch.zeros(32))


@pytest.mark.parametrize("token", [-1, 61])
def test_an_id_outside_the_vocabulary_is_named(
    tiny_named: Callable[[str], Tiny], token: int
) -> None:
    shard = load(tiny_named("llama tied").checkpoint(), LayerRange(0, 1))
    with pytest.raises(BadRequest, match=f"token id {token} is not in the vocabulary of 61"):
        shard.embed([5, token])


@pytest.mark.parametrize("dtype", DType)
def test_hidden_states_travel_unchanged(tiny_named: Callable[[str], Tiny], dtype: DType) -> None:
    shard = load(tiny_named("llama tied").checkpoint(), LayerRange(1, 3), dtype)
    x = torch.randn(32, 3, requires_grad=True).t()
    sent = shard.to_wire(x, dtype)
    assert (sent.dtype, sent.shape) == (dtype.value, (3, 32))
    got = shard.from_wire(sent)
    assert shard.to_wire(got, dtype) == sent
    torch.testing.assert_close(got.float(), x.detach(), atol=0.02, rtol=0.01)


@pytest.mark.parametrize(
    ("dtype", "golden"),
    [(DType.F32, "0000803f000000c0"), (DType.F16, "003c00c0"), (DType.BF16, "803f00c0")],
)
def test_the_bytes_are_little_endian(dtype: DType, golden: str) -> None:
    sent = Shard.to_wire(torch.tensor([[1.0, -2.0]]), dtype)
    assert sent == WireTensor(dtype.value, (1, 2), bytes.fromhex(golden))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (float("nan"), DType.F32),
        (float("-inf"), DType.BF16),
        (70_000.0, DType.F16),
        (-2e9, DType.F32),
    ],
)
def test_our_own_values_that_are_not_finite_are_not_sent(value: float, dtype: DType) -> None:
    with pytest.raises(NotFinite):
        Shard.to_wire(torch.tensor([[1.0, value]]), dtype)


@pytest.mark.parametrize(
    "lie",
    [
        WireTensor("f16", (1, 32), bytes(128)),
        WireTensor("f64", (1, 32), bytes(256)),
        WireTensor("f32", (1, 31), bytes(124)),
        WireTensor("f32", (2, 32), bytes(128)),
        WireTensor("f32", (0, 32), b""),
        WireTensor("f32", (1, 32), bytes(124) + bytes.fromhex("0000807f")),
        WireTensor("f32", (1, 32), bytes.fromhex("0000c07f") + bytes(124)),
        WireTensor("f32", (1, 32), bytes(124) + struct.pack("<f", -3e38)),
        WireTensor("bf16", (1, 32), bytes(62) + bytes.fromhex("617f")),
    ],
)
def test_a_peers_tensor_that_lies_is_refused(middle: Shard, lie: WireTensor) -> None:
    with pytest.raises(BadTensor):
        middle.from_wire(lie)


def test_a_value_that_our_dtype_does_not_hold_is_the_peers_fault(
    middle: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = WireTensor("f32", (1, 32), bytes(124) + struct.pack("<f", 70_000.0))
    assert float(middle.from_wire(sent).max()) == 70_000.0
    monkeypatch.setattr(middle, "dtype", DType.F16)
    with pytest.raises(BadTensor, match="above 65504"):
        middle.from_wire(sent)


@pytest.mark.parametrize("word", ["f16", "bf16", "f32"])
def test_a_hidden_state_of_another_dtype_is_taken_in_our_own(middle: Shard, word: str) -> None:
    values = torch.linspace(-2, 2, 64).view(2, 32)
    sent = middle.to_wire(values, DType(word))
    got = middle.from_wire(sent)
    assert sent.dtype == word
    assert got.dtype == torch.float32
    assert torch.allclose(got, values, atol=2e-2)
