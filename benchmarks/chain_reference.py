"""transformers on the same weights, as a program that takes turns: one for every line on stdin.

`chain.py` starts it. A turn is a greedy answer; its event says how fast it was, and its tokens.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.engine import reference
from tessella.engine.device import limit_threads
from tessella.engine.weights import open_checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def run() -> None:
    """The program: `GGUF TOKENS PROMPT`. It ends with its standard input."""
    path, count, prompt = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    limit_threads(1)
    checkpoint = open_checkpoint(path)
    model, ids = reference(checkpoint), checkpoint.tokenizer().encode(prompt)
    checkpoint.close()
    _tell({"event": "ready"})
    for number, _ in enumerate(sys.stdin):
        rate, tokens = _turn(model, ids, count)
        _tell({"event": f"turn-{number}", "tok_s": rate, "tokens": tokens})


@torch.inference_mode()
def _turn(model: PreTrainedModel, prompt: list[int], count: int) -> tuple[float, list[int]]:
    """What `generate` does for a greedy answer, without what it adds. The first token is untimed,
    as it is for the meshes.
    """
    called: Any = model
    said = called(torch.tensor([prompt]), use_cache=True, logits_to_keep=1)
    tokens = [int(said.logits[0, -1].argmax())]
    started = time.perf_counter()
    while len(tokens) < count:
        said = called(torch.tensor([tokens[-1:]]), cache=said.cache)
        tokens.append(int(said.logits[0, -1].argmax()))
    return (count - 1) / (time.perf_counter() - started), tokens


def _tell(event: dict[str, object]) -> None:
    print(json.dumps(event), flush=True)
