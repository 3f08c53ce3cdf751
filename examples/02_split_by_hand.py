"""One model in two shards, and a hidden state that travels between them by hand.

    python examples/02_split_by_hand.py

Everything that a mesh does is around these few lines: a shard is a range of whole layers, and
what goes from one to the next is one tensor of shape [positions, hidden]. No network in here.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tessella.core.layers import LayerRange
from tessella.core.sampling import Sampling
from tessella.core.shapes import DType
from tessella.core.tensors import WireTensor
from tessella.engine.cache import Cache
from tessella.engine.device import Device
from tessella.engine.sampler import choose
from tessella.engine.shard import Shard, load_shard
from tessella.engine.toy import toy_shape, write_toy
from tessella.engine.weights import open_checkpoint

PROMPT = "Hello"
TOKENS = 8
POSITIONS = 64


def advance() -> None:
    """A layer is done: a node shows progress here, and stops work that nobody waits for."""


def run(shards: list[Shard], prompt: list[int]) -> tuple[list[int], int]:
    """Answer greedily through shards in order: the tokens, and the bytes that went between."""
    caches: list[Cache] = [shard.open_cache(POSITIONS, shard.layers) for shard in shards]
    answer: list[int] = []
    sent = 0
    while len(answer) < TOKENS:
        # The first step takes the whole prompt, each later one the token chosen last.
        ids, position = (answer[-1:], len(prompt) + len(answer) - 1) if answer else (prompt, 0)
        x = shards[0].embed(ids)
        for shard, cache in zip(shards, caches, strict=True):
            if shard is not shards[0]:
                # This is the hop: bytes out of one shard, checked on their way into the next.
                wire: WireTensor = Shard.to_wire(x, shard.dtype)
                sent += len(wire.data)
                x = shard.from_wire(wire)
            x = shard.forward(x, cache, position, shard.layers, advance)
        # The last shard has the head. Logits stay there: only a token's id leaves.
        chosen = choose(
            shards[-1].logits(x[-1]),
            prompt=prompt,
            answer=answer,
            sampling=Sampling(ignore_eos=True),
            eos_ids=(),
            position=len(prompt) + len(answer),
        )
        answer.append(chosen.id)
    return answer, sent


def main() -> None:
    """Split a toy in two, and compare with the whole."""
    with tempfile.TemporaryDirectory() as directory:
        # 1. A checkpoint of six random layers, in the layout of HuggingFace.
        write_toy(Path(directory), shape=toy_shape(layers=6), seed=4)
        checkpoint = open_checkpoint(Path(directory))

        # 2. Load three ranges. Only the tensors of a range are read.
        def load(start: int, stop: int) -> Shard:
            layers = LayerRange(start, stop)
            return load_shard(checkpoint, layers, device=Device.CPU, dtype=DType.F32)

        whole, front, back = load(0, 6), load(0, 3), load(3, 6)
        for shard in (whole, front, back):
            print(f"shard {shard.layers}: {shard.weight_bytes / 1024:.0f} KiB")

        # 3. The same question to the whole model and to its two halves.
        prompt = checkpoint.tokenizer().encode(PROMPT)
        alone, _ = run([whole], prompt)
        together, sent = run([front, back], prompt)

    # 4. Greedy answers are the same to the last token.
    print(f"whole:  {alone}")
    print(f"halves: {together}, {sent} bytes of hidden states between them")
    print("the same" if alone == together else "DIFFERENT")


if __name__ == "__main__":
    main()
