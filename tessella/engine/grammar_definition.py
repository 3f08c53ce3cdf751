"""What a request may ask of its answer's text, and how the library that enforces it is told.

A grammar is the JSON of `Sampling.grammar`:

    {"type": "json_object"}                    any JSON object
    {"type": "json_schema", "schema": {...}}   JSON that is valid under the schema
    {"type": "lark", "grammar": "..."}         text, in llguidance's dialect of Lark

JSON starts with its first character and ends with its last; between its parts is white space, up
to MAX_SPACES at a place, since models are known to go on with it for ever. Properties come in the
order of the schema. A keyword that cannot be enforced is refused by name, never passed over.
"""

from __future__ import annotations

import json

from tessella.core.errors import BadRequest

# Characters: enough to indent by four, sixteen levels deep.
MAX_SPACES = 64

# What a schema may say under this key changes what JSON is: it is ours alone.
_OPTIONS = {"x-guidance": {"whitespace_pattern": rf"[ \t\r\n]{{1,{MAX_SPACES}}}"}}


def definition_of(grammar: str, strips_space: bool) -> str:
    """A grammar in llguidance's own JSON. Raises BadRequest for one that is none of ours.

    Where the space before a text's first word is not shown, the text may begin with one more than
    it has; it must where it could begin with one of its own, which would be lost.
    """
    try:
        asked = json.loads(grammar)
        first, body = _body(asked)
        parts = [body]
        if strips_space:
            parts = [{"lark_grammar": f"start: {first} @answer"}, {"name": "answer", **body}]
        return json.dumps({"grammars": parts}, allow_nan=False)
    except (ValueError, RecursionError) as exc:
        raise BadRequest("response_format: a grammar that is not JSON") from exc


def _body(asked: object) -> tuple[str, dict[str, object]]:
    match asked:
        case {"type": "json_object"}:
            return '" "?', {"json_schema": {"type": "object", **_OPTIONS}}
        case {"type": "json_schema", "schema": dict(schema)}:
            return '" "?', {"json_schema": {**schema, **_OPTIONS}}
        case {"type": "json_schema", "schema": bool(whether)}:
            schema = {} if whether else {"not": {}}
            return '" "?', {"json_schema": {**schema, **_OPTIONS}}
        case {"type": "lark", "grammar": str(text)}:
            return '" "', {"lark_grammar": text}
    raise BadRequest(
        "response_format: a type is json_object, json_schema with a schema, or lark with a grammar"
    )
