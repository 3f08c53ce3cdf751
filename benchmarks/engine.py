"""How fast one process decodes, beside transformers on the same weights.

    python benchmarks/engine.py --json
    python benchmarks/engine.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf

Both run in f32 on one thread, in turns, so that whatever else this machine does slows both. Without
`--gguf` the weights are random, in the shape of SmolLM2-135M: speed does not depend on the values.
The shard is loaded first, and its peak of memory is measured before transformers is imported.
Exit 0 if we are at least as fast, with the same tokens; else 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tessella.core.costs import embedding_bytes
from tessella.core.parameters import parameters_of
from tessella.core.shapes import DType, ModelShape, Rope
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.device import Device, limit_threads
from tessella.engine.shard import Shard, load_shard
from tessella.engine.toy import config_of_shape, write_toy
from tessella.engine.weights import open_checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MIB = 1024 * 1024
SMOLLM2_135M = ModelShape(
    family="llama",
    layers=30,
    hidden=576,
    intermediate=1536,
    heads=9,
    kv_heads=3,
    head_dim=64,
    vocab=49_152,
    context=8_192,
    rope=Rope(theta=100_000.0),
    tied=True,
)
PROMPT = list(range(1_000, 1_064))
# Rounds, each with one turn of ours and one of theirs; the first only warms up.
ROUNDS = 5
TOKENS = 32


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One answer: how fast, which tokens, and the last logits."""

    rate: float
    tokens: list[int]
    logits: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Report:
    """What is printed. Rates are decoded tokens a second, memory is MiB."""

    weights: str
    ours: float
    transformers: float
    ratio: float
    prefill_ours: float
    prefill_transformers: float
    same_tokens: bool
    logits_max_abs_diff: float
    load_seconds: float
    weights_mib: float
    load_peak_mib: float
    load_allowed_mib: float


def peak_mib(*, reset: bool = False) -> float:
    """The most memory this process held, anonymous and mapped, since the last reset (Linux)."""
    if reset:
        # Linux: 5 sets the high-water mark to what is held at this moment.
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def our_turn(shard: Shard) -> tuple[Turn, float]:
    """A decode of TOKENS after the prompt, and the rate of the prefill."""
    layers = shard.layers
    cache = shard.open_cache(len(PROMPT) + TOKENS, layers)

    def step(ids: list[int], position: int) -> torch.Tensor:
        hidden = shard.forward(shard.embed(ids), cache, position, layers, lambda: None)
        return shard.logits(hidden[-1])

    started = time.perf_counter()
    first = step(PROMPT, 0)
    prefill = len(PROMPT) / (time.perf_counter() - started)
    return timed(first, lambda token, at: step([token], at)), prefill


@torch.inference_mode()
def their_turn(model: PreTrainedModel) -> tuple[Turn, float]:
    """The same with transformers, as its `generate` does it and without what that adds."""
    called: Any = model
    started = time.perf_counter()
    said = called(torch.tensor([PROMPT]), use_cache=True, logits_to_keep=1)
    prefill = len(PROMPT) / (time.perf_counter() - started)
    cache = said.cache

    def step(token: int, _: int) -> torch.Tensor:
        logits: torch.Tensor = called(torch.tensor([[token]]), cache=cache, use_cache=True).logits
        return logits[0, -1]

    return timed(said.logits[0, -1], step), prefill


def timed(logits: torch.Tensor, step: Callable[[int, int], torch.Tensor]) -> Turn:
    """TOKENS greedy steps."""
    tokens: list[int] = []
    started = time.perf_counter()
    for at in range(TOKENS):
        tokens.append(int(logits.argmax()))
        logits = step(tokens[-1], len(PROMPT) + at)
    rate = TOKENS / (time.perf_counter() - started)
    return Turn(rate=rate, tokens=tokens, logits=logits)


def reference(checkpoint: Checkpoint) -> PreTrainedModel:
    """The model of transformers, filled from the same checkpoint."""
    from transformers import AutoConfig, AutoModelForCausalLM

    shape = checkpoint.shape
    settings: dict[str, Any] = config_of_shape(shape)
    automatic: Any = AutoModelForCausalLM
    model: PreTrainedModel = automatic.from_config(
        AutoConfig.for_model(**settings), dtype=torch.float32
    )
    held = model.state_dict()
    for name in parameters_of(shape):
        checkpoint.read(name, held[name])
    model.train(False)
    return model


def measure(checkpoint: Checkpoint, weights: str) -> Report:
    """Load, then take turns."""
    before, started = peak_mib(reset=True), time.perf_counter()
    shard = load_shard(checkpoint, checkpoint.shape.whole, device=Device.CPU, dtype=DType.F32)
    seconds, peak = time.perf_counter() - started, peak_mib() - before
    model = reference(checkpoint)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(our_turn(shard))
        theirs.append(their_turn(model))
    rate, their_rate = (
        statistics.median(turn.rate for turn, _ in turns[1:]) for turns in (ours, theirs)
    )
    prefill, their_prefill = (
        statistics.median(rate for _, rate in turns[1:]) for turns in (ours, theirs)
    )
    last, their_last = ours[-1][0], theirs[-1][0]
    largest = embedding_bytes(checkpoint.shape, DType.F32)
    return Report(
        weights=weights,
        ours=round(rate, 2),
        transformers=round(their_rate, 2),
        ratio=round(rate / their_rate, 2),
        prefill_ours=round(prefill, 1),
        prefill_transformers=round(their_prefill, 1),
        same_tokens=last.tokens == their_last.tokens,
        logits_max_abs_diff=float((last.logits - their_last.logits).abs().max()),
        load_seconds=round(seconds, 2),
        weights_mib=round(shard.weight_bytes / MIB, 1),
        load_peak_mib=round(peak, 1),
        load_allowed_mib=round((shard.weight_bytes + largest) / MIB, 1),
    )


def main() -> int:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gguf", type=Path, help="weights to use instead of random ones")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args()
    limit_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = asked.gguf
        if path is None:
            path = Path(folder)
            write_toy(path, shape=SMOLLM2_135M, dtype=DType.F16)
        checkpoint = open_checkpoint(path)
        try:
            report = measure(checkpoint, path.name if asked.gguf else "random")
        finally:
            checkpoint.close()
    if asked.json:
        print(json.dumps(asdict(report), indent=2))
    else:
        for key, value in asdict(report).items():
            print(f"{key:20} {value}")
    return 0 if report.ratio >= 1.0 and report.same_tokens else 1


if __name__ == "__main__":
    sys.exit(main())
