"""Recomputing: the same rows as a shard's, in the memory of one layer, and how far others are."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from tessella.core.audits import Verdict, judge
from tessella.core.costs import kv_bytes
from tessella.core.errors import BadRequest, BadTensor, LocalError, NotFinite
from tessella.core.layers import LayerRange
from tessella.core.numeric import NumericClass
from tessella.core.parameters import layer_parameters
from tessella.core.shapes import DType
from tessella.engine import recompute as recomputing
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.device import Device, torch_dtype
from tessella.engine.loading import DecoderReader
from tessella.engine.recompute import (
    Recomputation,
    measure,
    recompute,
    recompute_bytes,
    weights_of,
)
from tessella.engine.shard import load_shard
from tessella.engine.toy import toy_shape, write_toy
from tessella.engine.weights import open_checkpoint

if TYPE_CHECKING:
    from tests.engine.conftest import Tiny

CUTS = [LayerRange(0, 4), LayerRange(0, 1), LayerRange(1, 3), LayerRange(3, 4)]
IDS = [5, 60, 0, 17, 17, 33, 8, 2, 41]
TOY = toy_shape(hidden=128, layers=3)
TOY_IDS = [(7 * at * at + 3 * at) % 256 for at in range(40)]


def nothing() -> None: ...


def served(
    checkpoint: Checkpoint,
    layers: LayerRange,
    source: list[int] | Tensor,
    dtype: DType = DType.F32,
) -> Tensor:
    """What an honest worker answers, in its own dtype."""
    shard = load_shard(checkpoint, layers, device=Device.CPU, dtype=dtype)
    x = shard.embed(source) if isinstance(source, list) else source.to(torch_dtype(dtype))
    return shard.forward(x, shard.open_cache(len(x), layers), 0, layers, nothing)


@pytest.fixture
def toy(tmp_path: Path) -> Checkpoint:
    write_toy(tmp_path, shape=TOY)
    return open_checkpoint(tmp_path)


def input_rows(checkpoint: Checkpoint, start: int, ids: list[int] = TOY_IDS) -> Tensor:
    return served(checkpoint, LayerRange(0, start), ids).to(torch.bfloat16)


@pytest.mark.parametrize("layers", CUTS, ids=str)
def test_it_answers_what_a_shard_in_f32_does(tiny: Tiny, layers: LayerRange) -> None:
    checkpoint = tiny.checkpoint()
    source: list[int] | Tensor = IDS
    if layers.start:
        source = torch.randn(9, tiny.shape.hidden, generator=torch.Generator().manual_seed(1))
    again = recompute(checkpoint, layers, source, nothing)
    assert again.dtype == torch.float32
    torch.testing.assert_close(again, served(checkpoint, layers, source), rtol=1e-5, atol=1e-5)


def test_a_step_reads_one_matrix_or_runs_one_chunk_through_one_layer(
    toy: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recomputing, "CHUNK_POSITIONS", 16)
    read: list[str] = []
    read_tensor, advanced = toy.read, [0]

    def watched(name: str, into: Tensor) -> None:
        read.append(name)
        read_tensor(name, into)

    def advance() -> None:
        advanced[0] += 1

    monkeypatch.setattr(toy, "read", watched)
    work = Recomputation(toy, LayerRange(0, 2), TOY_IDS)
    assert read == []
    more = True
    while more:
        before = len(read), advanced[0]
        more = work.step(advance)
        # Three projections are one fused matrix.
        assert len(read) - before[0] <= 3
        assert advanced[0] - before[1] <= 1
        assert not (len(read) > before[0] and advanced[0] > before[1])
    assert advanced[0] == 2 * 3
    assert work.rows is not None
    assert torch.equal(work.rows, recompute(toy, LayerRange(0, 2), TOY_IDS, nothing))


def test_a_long_session_runs_in_chunks_to_the_same_rows(
    toy: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = recompute(toy, TOY.whole, TOY_IDS, nothing)
    monkeypatch.setattr(recomputing, "CHUNK_POSITIONS", 7)
    chunks = 0

    def count() -> None:
        nonlocal chunks
        chunks += 1

    torch.testing.assert_close(recompute(toy, TOY.whole, TOY_IDS, count), whole)
    assert chunks == TOY.layers * 6


def test_only_one_layer_is_held_at_a_time(
    tiny_named: Callable[[str], Tiny], monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier: list[weakref.ref[Tensor]] = []
    read_parts = DecoderReader.layer_parts

    def watched(self: DecoderReader, index: int) -> Iterator[tuple[str, Tensor | None]]:
        assert not any(tensor() is not None for tensor in earlier)
        for name, part in read_parts(self, index):
            if name in ("qkv", "gate_up", "down"):
                earlier.append(weakref.ref(part))
            yield name, part

    monkeypatch.setattr(DecoderReader, "layer_parts", watched)
    tiny = tiny_named("llama tied")
    recompute(tiny.checkpoint(), tiny.shape.whole, IDS, nothing)
    assert len(earlier) == 3 * tiny.shape.layers


@pytest.mark.parametrize("layers", [LayerRange(0, 2), LayerRange(2, 4)], ids=str)
def test_nothing_is_read_but_what_the_range_needs_and_each_tensor_once(
    tiny_named: Callable[[str], Tiny], layers: LayerRange
) -> None:
    tiny = tiny_named("llama untied")
    checkpoint = tiny.checkpoint()
    source = IDS if layers.start == 0 else torch.ones(2, tiny.shape.hidden)
    recompute(checkpoint, layers, source, nothing)
    wanted = {key for layer in layers for key, _ in layer_parameters(tiny.shape, layer)}
    if layers.start == 0:
        wanted.add("model.embed_tokens.weight")
    assert sorted(checkpoint.reads) == sorted(wanted)


def test_the_input_is_left_as_it_was_and_may_be_in_any_dtype(toy: Checkpoint) -> None:
    rows = input_rows(toy, 1)
    kept = rows.clone()
    again = recompute(toy, LayerRange(1, 3), rows, nothing)
    assert torch.equal(rows, kept)
    f32 = rows.float()
    assert torch.equal(recompute(toy, LayerRange(1, 3), f32, nothing), again)
    assert torch.equal(f32, kept.float())


@pytest.mark.parametrize("stored", [DType.F16, DType.BF16])
def test_an_embedding_in_16_bits_loses_nothing(tmp_path: Path, stored: DType) -> None:
    write_toy(tmp_path, shape=TOY, dtype=stored)
    checkpoint = open_checkpoint(tmp_path)
    layers = LayerRange(0, 1)
    again = recompute(checkpoint, layers, TOY_IDS, nothing)
    torch.testing.assert_close(again, served(checkpoint, layers, TOY_IDS))


def test_what_the_work_is_told_stops_it(toy: Checkpoint) -> None:
    def stop() -> None:
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        recompute(toy, TOY.whole, TOY_IDS, stop)


@pytest.mark.parametrize(
    ("layers", "source", "error", "told"),
    [
        (LayerRange(0, 4), [1], LocalError, "of a model of 3"),
        (LayerRange(1, 2), [1], LocalError, "token ids are no input"),
        (LayerRange(0, 1), [1, 260], BadRequest, "token id 260"),
        (LayerRange(0, 1), [-1], BadRequest, "token id -1"),
        (LayerRange(0, 1), [], BadRequest, "no token ids"),
        (LayerRange(1, 2), torch.ones(3, 127), BadTensor, r"\[3, 127\]"),
        (LayerRange(1, 2), torch.ones(128), BadTensor, r"\[128\]"),
        (LayerRange(1, 2), torch.ones(0, 128), BadTensor, r"\[0, 128\]"),
    ],
)
def test_what_cannot_be_recomputed_is_named(
    toy: Checkpoint, layers: LayerRange, source: list[int] | Tensor, error: type, told: str
) -> None:
    with pytest.raises(error, match=told):
        recompute(toy, layers, source, nothing)


def test_its_memory_is_priced_by_one_layer_and_the_rows() -> None:
    rows = 2 * 4 * 1000 * TOY.hidden
    layer = 4 * TOY.layer_params + kv_bytes(TOY, 1, 1000, DType.F32)
    assert recompute_bytes(TOY, 1000, embedding=False) == layer + rows
    wide = toy_shape(hidden=128, vocab=50_000)
    assert recompute_bytes(wide, 10, embedding=True) == 4 * 50_000 * 128 + 2 * 4 * 10 * 128


def honest(klass: NumericClass, toy: Checkpoint, layers: LayerRange) -> tuple[Tensor, Tensor]:
    """A worker's rows as they leave it, and the auditor's."""
    source = input_rows(toy, layers.start)
    output = served(toy, layers, source, klass.compute).to(torch_dtype(klass.wire))
    return output, recompute(toy, layers, source, nothing)


CLASSES = [NumericClass(compute, "f32", wire) for compute in DType for wire in DType]


@pytest.mark.parametrize("klass", CLASSES, ids=str)
def test_an_honest_node_of_every_class_passes(toy: Checkpoint, klass: NumericClass) -> None:
    layers = LayerRange(1, 3)
    judged = judge(measure(*honest(klass, toy, layers)), klass, len(layers))
    assert judged.verdict is Verdict.PASSED, judged.reason


@pytest.mark.parametrize(
    ("served_as", "declared"),
    [(DType.F16, DType.F32), (DType.BF16, DType.F32), (DType.BF16, DType.F16)],
)
def test_a_coarser_class_than_declared_is_rejected(
    toy: Checkpoint, served_as: DType, declared: DType
) -> None:
    layers = LayerRange(1, 3)
    found = measure(*honest(NumericClass(served_as, "f32", DType.F32), toy, layers))
    judged = judge(found, NumericClass(declared, "f32", declared), len(layers))
    assert judged.verdict is Verdict.REJECTED


CHEATS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "echo": lambda output, source: source,
    "scale 1.01": lambda output, source: output * 1.01,
    "scale 1.05": lambda output, source: output * 1.05,
    "8 channels zeroed": lambda output, source: torch.cat(
        (torch.zeros(len(output), 8), output[:, 8:]), dim=1
    ),
    "one stale token": lambda output, source: torch.cat((output[:20], output[19:20], output[21:])),
    "shifted by one": lambda output, source: output.roll(1, 0),
}


@pytest.mark.parametrize("cheat", CHEATS)
@pytest.mark.parametrize("dtype", DType)
def test_a_cheat_is_rejected_under_every_class(toy: Checkpoint, dtype: DType, cheat: str) -> None:
    klass = NumericClass(dtype, "f32", dtype)
    layers = LayerRange(1, 3)
    output, reference = honest(klass, toy, layers)
    wrong = CHEATS[cheat](output.float(), input_rows(toy, 1).float())
    judged = judge(measure(wrong.to(output.dtype), reference), klass, len(layers))
    assert judged.verdict is Verdict.REJECTED


def test_figures_are_relative_to_the_reference() -> None:
    reference = torch.tensor([[3.0, 4.0], [0.0, 10.0], [6.0, 8.0]])
    output = torch.tensor([[3.0, 4.5], [0.0, 12.0], [6.0, 8.0]])
    found = measure(output, reference)
    assert found.tokens == 3
    assert found.finite
    assert found.median == pytest.approx(0.1)
    assert found.worst == pytest.approx(0.2)
    assert found.gain == pytest.approx(1.08)


def test_a_sink_leaves_the_medians_and_stays_in_the_maximum() -> None:
    reference = torch.ones(3, 4)
    reference[0] = 100.0
    output = reference.clone()
    output[0] *= 1.5
    output[1:] *= 1.01
    found = measure(output, reference)
    assert found.median == pytest.approx(0.01)
    assert found.gain == pytest.approx(1.01)
    assert found.worst == pytest.approx(0.5)


def test_tokens_whose_rows_are_zero_accuse_nobody_who_answers_zero() -> None:
    reference = torch.ones(3, 4)
    reference[:2] = 0.0
    found = measure(reference.clone(), reference)
    assert (found.median, found.worst, found.gain) == (0.0, 0.0, 1.0)
    output = reference.clone()
    output[0, 0] = 1e-3
    assert measure(output, reference).worst > 1.0


def test_sums_do_not_lose_what_f32_would() -> None:
    reference = torch.full((1, 1 << 16), 1e-3)
    reference[0, 0] = 1e15
    output = reference.clone()
    output[0, 1:] += 1e6
    assert measure(output, reference).worst == pytest.approx(1e6 * 256 / 1e15, rel=1e-3)


def test_figures_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    reference = torch.randn(50, 16)
    output = reference + torch.randn(50, 16) * 0.01
    whole = measure(output, reference)
    monkeypatch.setattr(recomputing, "CHUNK_POSITIONS", 7)
    assert measure(output, reference) == whole


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_one_value_that_is_not_finite_is_malformed(value: float) -> None:
    output = torch.ones(3, 4)
    output[1, 2] = value
    found = measure(output, torch.ones(3, 4))
    assert not found.finite
    assert judge(found, CLASSES[0], 1).verdict is Verdict.MALFORMED


def test_an_auditor_whose_own_rows_are_not_finite_judges_nobody() -> None:
    reference = torch.ones(3, 4)
    reference[2, 0] = float("inf")
    with pytest.raises(NotFinite, match="recomputed"):
        measure(torch.ones(3, 4), reference)


@pytest.mark.parametrize("size", [(2, 4), (4, 4), (3, 5), (3,), (0, 4), (3, 4, 1)])
def test_rows_of_another_shape_are_malformed(size: tuple[int, ...]) -> None:
    found = measure(torch.ones(size), torch.ones(3, 4))
    assert found.tokens == 0
    assert judge(found, CLASSES[0], 1).verdict is Verdict.MALFORMED


@pytest.mark.parametrize("stored", DType)
def test_the_weights_of_a_checkpoint_have_a_word(tmp_path: Path, stored: DType) -> None:
    write_toy(tmp_path, shape=TOY, dtype=stored)
    assert weights_of(open_checkpoint(tmp_path), LayerRange(1, 3)) == stored.value
