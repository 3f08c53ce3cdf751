"""What a request asks of the tail: how to choose a token, and when to stop.

Everything here is a value that travels in `Open`, so that any tail given the same logits, ids and
`Sampling` makes the same choice (the choosing itself is `engine.sampler`).
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from tessella.core.errors import BadRequest

MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_TOP_LOGPROBS = 20
MAX_BIASES = 1024
MAX_BIAS = 100.0
MAX_STOP_IDS = 16
# A schema of a large interface is a tenth of this; a stage reads it before it knows of what.
MAX_GRAMMAR_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How one answer is sampled. Raises BadRequest that names the field out of its rule."""

    max_tokens: int = 512
    """Tokens at most. At least 1."""
    temperature: float = 0.0
    """0 is greedy; up to 2."""
    top_p: float = 1.0
    """Smallest set of tokens with this much probability. In (0, 1]."""
    top_k: int = 0
    """This many most probable tokens; 0 is all."""
    min_p: float = 0.0
    """Tokens at least this probable relative to the best. In [0, 1)."""
    repetition_penalty: float = 1.0
    """Divides (multiplies, if negative) logits of ids in prompt and answer; in (0, 2]."""
    presence_penalty: float = 0.0
    """Subtracted once from ids already in the answer. In [-2, 2]."""
    frequency_penalty: float = 0.0
    """Subtracted per occurrence in the answer. In [-2, 2]."""
    seed: int = 0
    """Same logits, ids, parameters, seed and position: same token. Unsigned, 64 bits."""
    logprobs: int = 0
    """How many alternatives are reported with their log-probability; 0 is none. Up to 20."""
    stop: tuple[str, ...] = ()
    """Strings that end the answer and are not part of it. At most 16 of 256 characters."""
    stop_ids: tuple[int, ...] = ()
    """Token ids that end the answer beside the model's own. At most 16."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Added to the logits of these ids, each named once; from -100 to 100. At most 1024."""
    grammar: str = ""
    """What the answer's text must fit, as JSON: `{"type": "json_object"}`, or
    `{"type": "json_schema", "schema": ...}`, or `{"type": "lark", "grammar": "..."}`; at most
    64 KiB. Empty: any text."""
    ignore_eos: bool = False
    """Whether an end-of-sequence id is an ordinary token: for measurements."""

    def __post_init__(self) -> None:
        for name, rule in _RULES.items():
            value = getattr(self, name)
            low, high, wanted = rule
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise BadRequest(f"{name} must be a number, not {value!r}")
            if name in _WHOLE and not isinstance(value, int):
                raise BadRequest(f"{name} must be a whole number, not {value!r}")
            if not (math.isfinite(value) and low <= value <= high):
                raise BadRequest(f"{name} must be {wanted}, not {value!r}")
        if len(self.stop) > MAX_STOPS:
            raise BadRequest(f"stop holds {len(self.stop)} strings, at most {MAX_STOPS}")
        for text in self.stop:
            if not isinstance(text, str) or not 1 <= len(text) <= MAX_STOP_CHARS:
                raise BadRequest(f"stop must hold strings of 1 to {MAX_STOP_CHARS} characters")
        _check_ids("stop_ids", self.stop_ids, MAX_STOP_IDS)
        _check_ids("logit_bias", tuple(token for token, _ in self.logit_bias), MAX_BIASES)
        for token, bias in self.logit_bias:
            if isinstance(bias, bool) or not isinstance(bias, (int, float)):
                raise BadRequest(f"logit_bias of {token} must be a number, not {bias!r}")
            if not -MAX_BIAS <= bias <= MAX_BIAS:
                raise BadRequest(f"logit_bias of {token} must be from -100 to 100, not {bias!r}")
        if not isinstance(self.grammar, str) or len(self.grammar.encode()) > MAX_GRAMMAR_BYTES:
            raise BadRequest(f"grammar must be a text of at most {MAX_GRAMMAR_BYTES} bytes")

    def encode(self) -> bytes:
        """UTF-8 JSON of the fields, sorted by name."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> Sampling:
        """The inverse. Raises BadRequest for text that is not such an object."""
        try:
            loaded: Any = json.loads(data)
        except ValueError as exc:
            raise BadRequest("sampling parameters that are not JSON") from exc
        if not isinstance(loaded, dict):
            raise BadRequest("sampling parameters that are not an object")
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(loaded) - known):
            raise BadRequest(f"unknown sampling parameter {unknown[0]!r}")
        for name in ("stop", "stop_ids", "logit_bias"):
            if not isinstance(listed := loaded.get(name, []), list):
                raise BadRequest(f"{name} must be a list")
            loaded[name] = tuple(listed)
        biases = loaded["logit_bias"]
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in biases):
            raise BadRequest("logit_bias must hold pairs of an id and a number")
        loaded["logit_bias"] = tuple((token, bias) for token, bias in biases)
        return cls(**loaded)


def _check_ids(name: str, ids: tuple[object, ...], most: int) -> None:
    if len(ids) > most:
        raise BadRequest(f"{name} holds {len(ids)} ids, at most {most}")
    for token in ids:
        if type(token) is not int or not 0 <= token < 2**32:
            raise BadRequest(f"{name} must hold token ids, not {token!r:.40}")
    if len(set(ids)) != len(ids):
        raise BadRequest(f"{name} names an id twice")


_TINY = 1e-9
_WHOLE = {"max_tokens", "top_k", "seed", "logprobs"}
_RULES: dict[str, tuple[float, float, str]] = {
    "max_tokens": (1, 2**31 - 1, "at least 1"),
    "temperature": (0.0, 2.0, "from 0 to 2"),
    "top_p": (_TINY, 1.0, "above 0, at most 1"),
    "top_k": (0, 2**31 - 1, "at least 0"),
    "min_p": (0.0, 1.0 - _TINY, "from 0 to below 1"),
    "repetition_penalty": (_TINY, 2.0, "above 0, at most 2"),
    "presence_penalty": (-2.0, 2.0, "from -2 to 2"),
    "frequency_penalty": (-2.0, 2.0, "from -2 to 2"),
    "seed": (0, 2**64 - 1, "an unsigned 64-bit number"),
    "logprobs": (0, MAX_TOP_LOGPROBS, f"from 0 to {MAX_TOP_LOGPROBS}"),
}
