"""Whatever a model says under a schema is JSON, and valid under it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from tessella.core.errors import BadRequest
from tessella.engine.grammar import open_grammar
from tessella.engine.grammar_definition import MAX_SPACES
from tessella.engine.tokenizer import Tokenizer
from tessella.engine.weights import open_checkpoint
from tests.engine.noise import (
    BARE_SPM,
    BYTES,
    JSON_OBJECT,
    SPM,
    TOKENIZERS,
    answer,
    may_come,
    schema,
    shown,
)

SCHEMAS: dict[str, Any] = {
    "anything": {},
    "true": True,
    "null": {"type": "null"},
    "boolean": {"type": "boolean"},
    "integer": {"type": "integer", "minimum": -5, "maximum": 1200},
    "number": {"type": "number", "exclusiveMinimum": 0, "maximum": 9.5},
    "several": {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 999},
    "short string": {"type": "string", "minLength": 2, "maxLength": 5},
    "pattern": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2,4}$"},
    "date": {"type": "string", "format": "date"},
    "enum": {"enum": ["red", "grün", "青", 5, None, ["x"]]},
    "const": {"const": {"a": [1, "é😀"]}},
    "array": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 4},
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "boolean"}, {"const": "日本"}],
        "items": False,
        "minItems": 2,
    },
    "object": {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    "optional": {
        "type": "object",
        "properties": {"a": {"type": "null"}, "b": {"type": "boolean"}, "c": {"const": 1}},
        "additionalProperties": False,
    },
    "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    "unicode names": {
        "type": "object",
        "properties": {"größe": {"type": "integer"}, "名前": {"type": "string", "maxLength": 3}},
        "required": ["größe", "名前"],
    },
    "nested": {
        "type": "object",
        "properties": {
            "points": {
                "type": "array",
                "maxItems": 3,
                "items": {
                    "type": "object",
                    "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
                    "required": ["x", "y"],
                },
            }
        },
        "required": ["points"],
    },
    "anyOf": {"anyOf": [{"type": "integer"}, {"enum": ["yes", "no"]}, {"type": "null"}]},
    "anyOf objects": {
        "anyOf": [
            {"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]},
            {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]},
        ]
    },
    "allOf": {"allOf": [{"type": "integer", "minimum": 10}, {"type": "integer", "maximum": 30}]},
    "type list": {"type": ["string", "null"], "maxLength": 4},
    "tree": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                },
                "required": ["value"],
                "additionalProperties": False,
            }
        },
    },
}


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grammars that are known to be harmless compile at once."""
    monkeypatch.setattr("tessella.engine.grammar.try_grammar", lambda *_: "")


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
@pytest.mark.parametrize("name", SCHEMAS)
def test_noise_under_a_schema_is_json_that_is_valid(name: str, tokenizer: Tokenizer) -> None:
    grammar = open_grammar(tokenizer, schema(SCHEMAS[name]))
    for seed in range(2):
        grammar.rebuild([])
        text = shown(tokenizer, answer(tokenizer, grammar, seed))
        jsonschema.Draft202012Validator(SCHEMAS[name]).validate(json.loads(text))


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
def test_a_json_object_is_any_object_and_nothing_else(tokenizer: Tokenizer) -> None:
    grammar = open_grammar(tokenizer, JSON_OBJECT)
    for seed in range(4):
        grammar.rebuild([])
        assert isinstance(json.loads(shown(tokenizer, answer(tokenizer, grammar, seed))), dict)
    grammar.rebuild(
        list(b'{"a": [1, {"b": null}],\n\t"\xc3\xa9": ""}') if tokenizer is BYTES else []
    )
    assert grammar.complete == (tokenizer is BYTES)


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize("text", [b"[1]", b'"a"', b" {", b"{}\n", b'{"a":01}', b"{'a':1}", b"{,}"])
def test_what_is_no_json_object_is_refused(text: bytes) -> None:
    grammar = open_grammar(BYTES, JSON_OBJECT)
    with pytest.raises(BadRequest, match="response_format"):
        grammar.rebuild(text)


@pytest.mark.usefixtures("untried")
def test_white_space_comes_to_an_end() -> None:
    grammar = open_grammar(BYTES, JSON_OBJECT)
    grammar.rebuild(b"{" + b" \n" * (MAX_SPACES // 2))
    assert may_come(grammar, BYTES) == {ord('"'), ord("}")}


@pytest.mark.usefixtures("untried")
def test_what_json_is_cannot_be_redefined() -> None:
    loose = {"type": "array", "x-guidance": {"item_separator": ";"}, "items": {"type": "null"}}
    grammar = open_grammar(BYTES, schema(loose))
    grammar.rebuild(b"[null")
    assert ord(";") not in may_come(grammar, BYTES)


@pytest.mark.usefixtures("untried")
def test_json_may_start_with_the_space_that_is_not_shown() -> None:
    grammar = open_grammar(SPM, JSON_OBJECT)
    first = {SPM.token(one) for one in may_come(grammar, SPM)}
    assert first == {"{", "▁{", "▁", "<0x20>", "<0x7B>"}
    assert {
        BARE_SPM.token(one) for one in may_come(open_grammar(BARE_SPM, JSON_OBJECT), BARE_SPM)
    } == {"{"}


@pytest.mark.parametrize(
    ("grammar", "named"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 60_000, "not JSON"),
        ('{"type": "json_schema", "schema": {"const": NaN}}', "not JSON"),
        ("null", "a type is json_object"),
        ('{"type": "regex"}', "a type is json_object"),
        ('{"type": "json_schema"}', "a type is json_object"),
        ('{"type": "json_schema", "schema": "{}"}', "a type is json_object"),
        ('{"type": "lark", "grammar": {}}', "a type is json_object"),
    ],
)
def test_what_is_no_grammar_of_ours_is_named(grammar: str, named: str) -> None:
    with pytest.raises(BadRequest, match=f"^response_format: .*{named}") as caught:
        open_grammar(BYTES, grammar)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def smollm2(smollm2_gguf: Path) -> Tokenizer:
    return open_checkpoint(smollm2_gguf).tokenizer()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMAS)
def test_noise_of_the_real_vocabulary_is_valid_too(smollm2: Tokenizer, name: str) -> None:
    grammar = open_grammar(smollm2, schema(SCHEMAS[name]))
    text = shown(smollm2, answer(smollm2, grammar, seed=0))
    jsonschema.Draft202012Validator(SCHEMAS[name]).validate(json.loads(text))
