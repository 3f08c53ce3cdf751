"""A grammar that would take the node with it is refused, in one line and in bounded time."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tessella.core.errors import Busy, LocalError
from tessella.engine import grammar_trial
from tessella.engine.grammar_trial import MAX_COMPLAINT_CHARS, TRIAL_SECONDS, refusal, try_grammar

TOKENS = 300
TOO_MUCH = "takes over"


def schema(one: object) -> str:
    return json.dumps({"grammars": [{"json_schema": one}]})


def lark(text: str) -> str:
    return json.dumps({"grammars": [{"lark_grammar": text}]})


def nested(count: int, key: str) -> str:
    return '{"grammars":[{"json_schema":' + f'{{"{key}":' * count + "{}" + "}" * (count + 1) + "]}"


def chain(count: int) -> dict[str, Any]:
    """A schema of definitions that each refer to the next."""
    defs: dict[str, Any] = {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(count)}
    return {"$ref": "#/$defs/d0", "$defs": defs | {f"d{count}": {"type": "null"}}}


def rules(count: int) -> str:
    lines = [f'r{at}: "x" r{at + 1} | "y"' for at in range(count)]
    return "\n".join(["start: r0", *lines, f'r{count}: "z"'])


@pytest.mark.parametrize(
    "definition",
    [
        schema({"type": "object"}),
        schema(chain(20)),
        nested(50, "items"),
        schema({"type": "array", "minItems": 10**9, "maxItems": 2**63}),
        schema({"type": "string", "minLength": 10**6, "maxLength": 10**9}),
        schema({"type": "string", "pattern": "(a?){1000}a{1000}"}),
        schema({"type": "string", "pattern": "(((a{100}){100}){100}){100}"}),
        schema({"type": "object", "properties": {f"p{at}": {} for at in range(1500)}}),
        schema({"enum": [f"value {at}" for at in range(4000)]}),
        lark(rules(100)),
        lark("start: start start | /a*/ | "),
        lark(f"start: <[{TOKENS - 1}]>"),
    ],
)
def test_what_can_be_compiled_passes_however_it_looks(definition: str) -> None:
    assert try_grammar(definition, TOKENS) == ""


@pytest.mark.parametrize(
    ("definition", "named"),
    [
        (schema({"type": "strin"}), "strin"),
        (schema({"type": "object", "unevaluatedItems": False}), "unevaluatedItems"),
        (schema({"type": "string", "format": "no such"}), "no such"),
        (schema({"type": "string", "pattern": "(a"}), "unclosed group"),
        (schema({"type": "string", "pattern": "(?=a)b"}), "look-around"),
        (schema({"type": "array", "minItems": -1}), "minItems"),
        (schema({"$ref": "#/$defs/none"}), "none"),
        (schema({"$ref": "file:///etc/passwd"}), "passwd"),
        (schema({"$ref": "http://127.0.0.1:1/a.json"}), "does not fetch"),
        (schema({"$ref": "#"}), "no text fits"),
        (schema({"type": "integer", "minimum": 5, "maximum": 4}), "minimum"),
        (schema(chain(1500)), TOO_MUCH),
        (nested(5000, "items"), "recursion limit"),
        (nested(5000, "not"), "recursion limit"),
        (schema({"type": "string", "pattern": "(" * 2000 + "a" + ")" * 2000}), "regex"),
        (lark("start: nothing"), "nothing"),
        (lark("start: (((((" + "(" * 9000), "too deeply nested"),
        (lark("start: start"), "no text fits"),
        (lark('start: "a"{1000000}'), "Too many items"),
        (lark(rules(3000)), TOO_MUCH),
        (lark(f"start: <[{TOKENS + 1}]>"), "Token range"),
        (lark("start: <|special|>"), "special|can be compiled"),
        ("{}", "grammars"),
    ],
)
def test_what_cannot_be_compiled_is_refused_in_one_line(definition: str, named: str) -> None:
    error = refusal(try_grammar(definition, TOKENS))
    assert str(error).startswith("response_format: ")
    assert "\n" not in str(error)
    assert len(str(error)) <= MAX_COMPLAINT_CHARS + len("response_format: ")
    assert any(word in str(error) for word in named.split("|")), str(error)


@pytest.mark.slow
@pytest.mark.parametrize(
    "definition",
    [
        # Together multiples of 223,092,870: no machine is done with those soon.
        schema(
            {
                "allOf": [
                    {"type": "integer", "multipleOf": at} for at in (2, 3, 5, 7, 11, 13, 17, 19, 23)
                ]
            }
        ),
        schema({"type": "integer", "multipleOf": 99_999_989}),
        schema({"allOf": [{"type": "string", "pattern": f".*a.*{at:b}.*"} for at in range(60)]}),
    ],
)
def test_what_would_take_minutes_is_stopped(
    definition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However little of the processor it gets beside other tests.
    monkeypatch.setattr("tessella.engine.grammar_trial.WALL_SECONDS", 100.0)
    complaint = try_grammar(definition, TOKENS)
    assert TOO_MUCH in complaint
    assert f"{TRIAL_SECONDS} s" in complaint


def test_a_machine_without_time_is_busy_and_blames_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessella.engine.grammar_trial.WALL_SECONDS", 0.001)
    with pytest.raises(Busy, match=r"within 0\.001 s"):
        try_grammar(schema({}), TOKENS)
    monkeypatch.setattr("tessella.engine.grammar_trial._places", threading.BoundedSemaphore(1))
    with grammar_trial._places, pytest.raises(Busy, match="too many"):
        try_grammar(schema({}), TOKENS)


def test_a_place_is_given_back_whatever_happens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise RuntimeError('no library')")
    monkeypatch.setattr("tessella.engine.grammar_trial._PROGRAM", broken)
    for _ in range(4):
        with pytest.raises(LocalError, match="no library"):
            try_grammar(schema({}), TOKENS)


def test_a_trial_out_of_memory_is_too_much(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hungry = tmp_path / "hungry.py"
    hungry.write_text("raise MemoryError")
    monkeypatch.setattr("tessella.engine.grammar_trial._PROGRAM", hungry)
    assert TOO_MUCH in try_grammar(schema({}), TOKENS)
