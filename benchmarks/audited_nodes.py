"""What `audits.py` audits: prompts, nodes of every class, and weights quantised once more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize
from torch import Tensor

from tessella.core.layers import LayerRange
from tessella.core.parameters import EMBEDDING
from tessella.core.shapes import DType
from tessella.engine.cache import Cache
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.device import Device, torch_dtype
from tessella.engine.loading import DecoderReader
from tessella.engine.model import Decoder, Layer
from tessella.engine.rope import Rotary

_SUBJECTS = (
    "the lighthouse", "a steam engine", "the village baker", "an old violin",
    "the river delta", "a database index", "the first snow", "a chess opening",
)  # fmt: skip
_TEXTS = (
    "Once upon a time there was SUBJECT, and everybody in the valley had heard of it, but nobody"
    " could say who had made it, or why. One morning a child set out to learn the truth and met a"
    " fox, who had a story of its own to tell about the matter.",
    "def describe(subject: str = 'SUBJECT', times: int = 3) -> list[str]:\n    lines = []\n"
    "    for number in range(times):\n        lines.append(str(number) + ': ' + subject)\n"
    "    return lines\n\nprint(describe('nothing', 12))\n",
    "Question: What should a visitor know about SUBJECT?\nAnswer: Three things. First, it is older"
    " than it looks. Second, it needs care. Third, it should never be left alone.\nQuestion: Why"
    " should it never be left alone?\nAnswer: Because of what happened in the year 1978.",
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nPlease explain"
    " SUBJECT to a ten year old, in two short sentences, and then give three examples of it."
    "<|im_end|>\n<|im_start|>assistant\nImagine that you are standing in a large field",
    "SELECT name, COUNT(*) AS visits FROM places JOIN visits USING (place_id) WHERE name ="
    " 'SUBJECT' AND visited_at > '2021-03-01' GROUP BY name HAVING COUNT(*) > 12 ORDER BY visits"
    " DESC LIMIT 20; -- the most visited of all",
    "Dear Sir or Madam, I write to complain about SUBJECT. On Tuesday the 14th of May I paid 37.50"
    " for it, and by Friday it had stopped. I expect my money back within ten days of this letter,"
    " and a full apology. Yours faithfully,",
    "1. Take SUBJECT.\n2. Clean it with warm water and a soft cloth.\n3. Let it dry for 24 hours.\n"
    "4. Cut a board of 30 x 40 cm.\n5. Fix it with four screws.\n6. Paint it blue, green or"
    " yellow.\n7. Wait another day.",
    "Dans le nord du pays, on parle encore de SUBJECT. Les anciens disent que tout a commencé en"
    " 1893, quand le maire, un homme sévère, décida de tout changer. 東京 и Москва, 42 %.",
)


def prompts(checkpoint: Checkpoint, count: int, tokens: int) -> list[list[int]]:
    """So many prompts of exactly so many tokens, all different: 64 at most."""
    tokenizer = checkpoint.tokenizer()
    texts = [text.replace("SUBJECT", subject) for subject in _SUBJECTS for text in _TEXTS]
    found = [tokenizer.encode(text)[:tokens] for text in texts[:count]]
    if short := [len(ids) for ids in found if len(ids) < tokens]:
        raise SystemExit(f"the shortest prompt has {min(short)} tokens, fewer than {tokens}")
    return found


class Node:
    """All layers of a checkpoint in one dtype, and the arithmetic of a worker over any range."""

    def __init__(self, checkpoint: Checkpoint, dtype: DType) -> None:
        kind, device = torch_dtype(dtype), Device.CPU.torch_device
        reader = DecoderReader(checkpoint, kind, device, lambda *_: None)
        shape = checkpoint.shape
        rotary = Rotary(shape, kind, device)
        rotary.reach(shape.context)
        layers = {index: _laid_out(reader.layer(index)) for index in shape.whole}
        self.dtype = dtype
        self._decoder = Decoder(
            shape=shape, layers=layers, rotary=rotary, embedding=None, norm=None, head=None
        )

    def run(self, rows: Tensor, layers: LayerRange, piece: int) -> tuple[Tensor, Tensor]:
        """Rows before the last layer of the range and after it, some positions at a time."""
        x = rows.to(torch_dtype(self.dtype))
        if len(layers) > 1:
            x = self._through(x, LayerRange(layers.start, layers.stop - 1), piece)
        return x, self._through(x, LayerRange(layers.stop - 1, layers.stop), piece)

    def _through(self, x: Tensor, layers: LayerRange, piece: int) -> Tensor:
        cache = Cache(self._decoder.shape, layers, len(x), self.dtype, Device.CPU)
        parts = [
            self._decoder.run(x[start : start + piece], cache, layers, lambda: None)
            for start in range(0, len(x), piece)
        ]
        return torch.cat(parts)


def _laid_out(layer: Layer) -> Layer:
    """The same weights, each output contiguous: torch multiplies 16 bits 20 times as fast so."""
    if layer.qkv.dtype == torch.float32:
        return layer
    return replace(
        layer,
        qkv=layer.qkv.t().contiguous().t(),
        out=layer.out.t().contiguous().t(),
        gate_up=layer.gate_up.t().contiguous().t(),
        down=layer.down.t().contiguous().t(),
    )


class Inputs:
    """The rows that come to each range of a model, as the reference computes them."""

    def __init__(self, checkpoint: Checkpoint, reference: Node) -> None:
        shape = checkpoint.shape
        self._table = torch.empty(shape.vocab, shape.hidden)
        checkpoint.read(EMBEDDING, self._table)
        self._reference = reference

    @torch.inference_mode()
    def of(self, ids: Sequence[int], ranges: Sequence[LayerRange]) -> dict[LayerRange, Tensor]:
        """By range: rounded to bf16 as they would have travelled, but for the first layer's."""
        x = self._table[torch.tensor(ids)]
        found = {}
        reached = 0
        for layers in sorted(ranges):
            if layers.start > reached:
                _, x = self._reference.run(x, LayerRange(reached, layers.start), len(ids))
                reached = layers.start
            found[layers] = x.bfloat16() if reached else x
        return found


def requantised(source: Path, target: Path, kind: GGMLQuantizationType) -> None:
    """A GGUF file like `source`, with the matrices of its layers quantised anew from its values."""
    reader = GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    writer = GGUFWriter(target, architecture)
    for field in reader.fields.values():
        if field.name == "general.architecture" or field.name.startswith("GGUF."):
            continue
        inner = field.types[-1] if field.types[0] is GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        data, stored = tensor.data, tensor.tensor_type
        if len(tensor.shape) > 1 and tensor.name.startswith("blk."):
            data, stored = quantize(dequantize(data, stored), kind), kind
        writer.add_tensor(tensor.name, data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
