"""How long a prompt this node takes: the ceiling that it publishes, and where that comes from."""

from __future__ import annotations

from dataclasses import dataclass

from tessella.core.completions import MAX_REQUEST_BYTES
from tessella.core.errors import BadConfig, ContextTooLong, InputTooLong
from tessella.engine.shard import Shard

DECLARED, MEASURED = "declared", "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLimits:
    """What one request may bring."""

    context_size: int
    """Positions of a session: the prompt and the answer together."""
    max_input_tokens: int
    source: str
    """DECLARED by the operator, or MEASURED on this node's memory."""
    max_body_bytes: int = MAX_REQUEST_BYTES

    def check(self, tokens: int) -> None:
        """Raises ContextTooLong or InputTooLong, with both numbers, for a prompt of so many."""
        if tokens >= self.context_size:
            raise ContextTooLong(
                f"the prompt is {tokens} tokens, this node's context is {self.context_size}"
            )
        if tokens > self.max_input_tokens:
            raise InputTooLong(
                f"the prompt is {tokens} tokens, this node takes {self.max_input_tokens} "
                f"({self.source})"
            )


def input_limits(
    shard: Shard, *, context: int, kv_bytes: int, free_bytes: int | None, declared: int | None
) -> InputLimits:
    """The limits of a node with this shard loaded.

    A prompt is prefilled in chunks, so that what grows with it is its KV: it has to fit `kv_bytes`,
    the budget, and `free_bytes`, what the device has left (None where nobody can say). Raises
    BadConfig where `declared` is more than the context holds.
    """
    if declared is not None:
        if declared >= context:
            raise BadConfig(
                f"max_input_tokens: {declared} tokens, and a session's context is {context}"
            )
        return InputLimits(context_size=context, max_input_tokens=declared, source=DECLARED)
    room = kv_bytes if free_bytes is None else min(kv_bytes, free_bytes)
    fits = room // shard.kv_bytes(1, shard.layers)
    tokens = max(1, min(context - 1, fits))
    return InputLimits(context_size=context, max_input_tokens=tokens, source=MEASURED)
