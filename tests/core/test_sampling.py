"""Sampling parameters are checked where they enter, and survive the journey."""

from __future__ import annotations

from typing import Any

import pytest

from tessella.core.errors import BadRequest
from tessella.core.sampling import Sampling


def test_parameters_read_back_what_was_sent() -> None:
    sampling = Sampling(
        max_tokens=7,
        temperature=0.5,
        top_k=3,
        seed=2**64 - 1,
        stop=("a", "é\n"),
        logprobs=2,
        stop_ids=(3, 0),
        logit_bias=((7, -100.0), (2, 0.5)),
        grammar='{"type": "json_object"}',
    )
    assert Sampling.decode(sampling.encode()) == sampling


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", "hot"),
        ("temperature", True),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -1),
        ("min_p", 1.0),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -2.5),
        ("seed", -1),
        ("seed", 2**64),
        ("logprobs", 21),
        ("stop_ids", (1,) * 2),
        ("stop_ids", tuple(range(17))),
        ("stop_ids", (-1,)),
        ("stop_ids", ("a",)),
        ("logit_bias", ((1, 101.0),)),
        ("logit_bias", ((1, float("nan")),)),
        ("logit_bias", ((1, True),)),
        ("logit_bias", ((-1, 1.0),)),
        ("logit_bias", ((1, 1.0), (1, 2.0))),
        ("logit_bias", tuple((token, 1.0) for token in range(1025))),
        ("grammar", 3),
        ("grammar", "é" * 32769),
        ("stop", ("",)),
        ("stop", ("x" * 257,)),
        ("stop", ("x",) * 17),
    ],
)
def test_a_parameter_out_of_its_rule_is_named(name: str, value: Any) -> None:
    with pytest.raises(BadRequest, match=name):
        Sampling(**{name: value})


@pytest.mark.parametrize(
    ("data", "culprit"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not an object"),
        (b'{"temprature": 1}', "unknown sampling parameter 'temprature'"),
        (b'{"stop": "x"}', "stop must be a list"),
        (b'{"stop": [1]}', "stop must hold strings"),
        (b'{"stop_ids": 1}', "stop_ids must be a list"),
        (b'{"logit_bias": {"1": 2}}', "logit_bias must be a list"),
        (b'{"logit_bias": [[1]]}', "logit_bias must hold pairs"),
        (b'{"top_p": null}', "top_p must be a number"),
    ],
)
def test_bytes_that_are_no_parameters_are_refused_by_name(data: bytes, culprit: str) -> None:
    with pytest.raises(BadRequest, match=culprit):
        Sampling.decode(data)
