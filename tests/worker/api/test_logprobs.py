"""Two shapes of log-probabilities, golden."""

from __future__ import annotations

import math

from tessella.core.messages import Alternative
from tessella.worker.api.logprobs import LEAST, chat_logprobs, text_logprobs
from tessella.worker.api.voices import Mark
from tests.worker.api.conftest import VOCABULARY

MARKS = [
    Mark(1, -0.25, (Alternative(1, -0.25), Alternative(5, -2.0)), 0),
    Mark(3, -0.5, (Alternative(5, -0.25), Alternative(2, -math.inf)), 3),
]


def text(token_id: int) -> bytes:
    return VOCABULARY[token_id]


def test_a_chat_tells_bytes_since_a_character_may_be_in_two_tokens() -> None:
    hel = {"token": "Hel", "logprob": -0.25, "bytes": [72, 101, 108]}
    torn = {"token": "\ufffd", "logprob": -0.5, "bytes": [0xE6, 0xB1]}
    assert chat_logprobs(MARKS, text) == {
        "content": [
            {**hel, "top_logprobs": [hel, {"token": "!", "logprob": -2.0, "bytes": [33]}]},
            {
                **torn,
                "top_logprobs": [
                    {"token": "!", "logprob": -0.25, "bytes": [33]},
                    {"token": "lo", "logprob": LEAST, "bytes": [108, 111]},
                ],
            },
        ],
        "refusal": None,
    }


def test_a_text_tells_places_and_has_the_chosen_token_among_the_top() -> None:
    assert text_logprobs(MARKS, text, 2) == {
        "tokens": ["Hel", "\ufffd"],
        "token_logprobs": [-0.25, -0.5],
        "top_logprobs": [{"Hel": -0.25, "!": -2.0}, {"\ufffd": -0.5, "!": -0.25, "lo": LEAST}],
        "text_offset": [0, 3],
    }


def test_without_alternatives_there_are_none() -> None:
    bare = [Mark(1, -math.inf, (), 0)]
    assert text_logprobs(bare, text, 0)["top_logprobs"] is None
    assert text_logprobs(bare, text, 0)["token_logprobs"] == [LEAST]
    assert chat_logprobs(bare, text)["content"][0]["top_logprobs"] == []
