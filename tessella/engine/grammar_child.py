"""A program of its own: compile one grammar and take a few steps, and say what is wrong with it.

Reads one JSON object from standard input: `definition` (llguidance's own JSON), `tokens` (how many
the vocabulary has), `limits` (arguments of `LLParserLimits`), `seconds` of CPU and `memory` in
bytes. Writes a JSON string: what the library complains of, or "". Run by its path, so it imports
nothing of ours. It ends by a signal where it meets a limit, or where the library breaks.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

# Stack of the thread that compiles, in bytes: less than any thread of a node has, so that what
# passes here does not run over there.
STACK_BYTES = 1024 * 1024
# Tokens of one byte that are tried. A grammar too wide for the parser shows it at its beginning.
STEPS = 8


class Bytes:
    """A vocabulary with a token a byte, as long as the model's."""

    bos_token_id = None

    def __init__(self, tokens: int) -> None:
        self.eos_token_id = max(tokens, 256)
        self.tokens = [bytes([byte]) for byte in range(256)]
        self.tokens += [b""] * (self.eos_token_id + 1 - len(self.tokens))

    def __call__(self, text: str) -> list[int]:
        """The ids of forced text."""
        if not isinstance(text, str):
            raise TypeError("text, not bytes")
        return list(text.encode())


def complaint(asked: dict[str, Any]) -> str:
    """What is wrong with the grammar, "" for nothing."""
    vocabulary = LLTokenizer(TokenizerWrapper(Bytes(asked["tokens"])))
    limits = LLParserLimits(**asked["limits"])
    matcher = LLMatcher(vocabulary, asked["definition"], log_level=0, limits=limits)
    for _ in range(STEPS):
        if matcher.is_stopped():
            break
        allowed = matcher.compute_logit_bias()
        step = next((byte for byte in range(256) if allowed[byte]), None)
        if step is None or not matcher.consume_token(step):
            break
    return matcher.get_error() if matcher.is_error() else ""


def _limit(seconds: int, memory: int) -> None:
    try:
        import resource
    except ImportError:
        return  # there is none on Windows: whoever started us watches the clock
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _main() -> None:
    asked = json.loads(sys.stdin.buffer.read())
    _limit(asked["seconds"], asked["memory"])
    found: list[str] = []
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=lambda: found.append(complaint(asked)))
    thread.start()
    thread.join()
    sys.stdout.write(json.dumps(found[0]))


if __name__ == "__main__":
    _main()
