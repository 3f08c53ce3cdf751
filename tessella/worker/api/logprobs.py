"""Log-probabilities as a chat tells them, and as completions of a text do.

There is an entry for each token of the answer, also for the one that ended it and is not text: as
many as `completion_tokens` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tessella.worker.api.voices import Mark

LEAST = -9999.0
"""What OpenAI tells of a token that cannot come; JSON has no minus infinity."""

TokenText = Callable[[int], bytes]


def chat_logprobs(marks: Sequence[Mark], text: TokenText) -> dict[str, Any]:
    """`logprobs` of a chat's choice: with the bytes, since a character may be in two tokens."""
    return {
        "content": [
            {
                **_token(mark.token_id, mark.logprob, text),
                "top_logprobs": [_token(one.token_id, one.logprob, text) for one in mark.top],
            }
            for mark in marks
        ],
        "refusal": None,
    }


def text_logprobs(marks: Sequence[Mark], text: TokenText, alternatives: int) -> dict[str, Any]:
    """`logprobs` of a text's choice. The chosen token is always among the top ones."""
    return {
        "tokens": [_shown(text(mark.token_id)) for mark in marks],
        "token_logprobs": [max(LEAST, mark.logprob) for mark in marks],
        "top_logprobs": [_top(mark, text) for mark in marks] if alternatives else None,
        "text_offset": [mark.offset for mark in marks],
    }


def _top(mark: Mark, text: TokenText) -> dict[str, float]:
    top = {_shown(text(one.token_id)): max(LEAST, one.logprob) for one in mark.top}
    return {_shown(text(mark.token_id)): max(LEAST, mark.logprob)} | top


def _token(token_id: int, logprob: float, text: TokenText) -> dict[str, Any]:
    data = text(token_id)
    return {"token": _shown(data), "logprob": max(LEAST, logprob), "bytes": list(data)}


def _shown(data: bytes) -> str:
    return data.decode("utf-8", "replace")
