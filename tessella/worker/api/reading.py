"""How bodies are read: within bounds, strictly, and with nothing ignored.

A field that is not known, or cannot be honoured, is refused by its name, for whoever sent it takes
the answer for one that follows it. Null asks for nothing, under any name.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any

from fastapi import Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError
from pydantic import model_validator as model_rule
from pydantic_core import ErrorDetails, PydanticCustomError, from_json
from starlette.requests import Request
from starlette.responses import Response

from tessella.core.errors import BadRequest, UnsupportedField
from tessella.core.messages.failure import MAX_FAIL_CHARS
from tessella.web.errors import BadField, field_path

# 4096 messages of several parts are a third of it. Reading JSON holds the interpreter, in whichever
# thread: 4 MiB of empty arrays for a second, these many values for 50 ms.
MAX_VALUES = 64 * 1024
# An object of this API has 30; each that is not known is an error of its own to whoever reads it.
MAX_FIELDS = 64
_UNSUPPORTED = "unsupported"


def parse_json(body: bytes) -> Any:  # noqa: ANN401 - it is JSON
    """A JSON value of at most MAX_VALUES values, whose strings can all be written as UTF-8.

    Raises BadRequest.
    """
    if len(body) > MAX_VALUES and _values(body) > MAX_VALUES:
        raise BadRequest(f"body: more than {MAX_VALUES} values")
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as exc:
        raise BadRequest(f"body: not JSON: {exc}"[:MAX_FAIL_CHARS]) from None


def _values(body: bytes) -> int:
    """At least how many values a JSON text has: a string that is being read may hold anything."""
    bare = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if (quotes := bare.count(b'"')) > 4 * MAX_VALUES:
        return quotes // 4
    outside = b"".join(bare.split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{")))


class JsonRoute(APIRoute):
    """A route whose body is JSON and says so: what else a browser sends, any page may have it send.

    Raises BadRequest from `parse_json`, or for another Content-Type.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """As FastAPI has it."""
        handle = super().get_route_handler()

        async def read(request: Request) -> Response:
            return await handle(await _Parsed.of(request))

        return read if self.body_field is not None else handle


class _Parsed(Request):
    """A request whose body was parsed already."""

    value: Any = None

    @classmethod
    async def of(cls, request: Request) -> _Parsed:
        parsed = cls(request.scope, request.receive)
        if body := await parsed.body():
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise BadRequest(f"Content-Type: application/json is read here, not {kind!r:.80}")
            parsed.value = parse_json(body)
        return parsed

    async def json(self) -> Any:  # noqa: ANN401 - it is JSON
        return self.value


class Strict(BaseModel):
    """An object of a body: exact types, no field beyond its own but null ones."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        json_schema_extra={"additionalProperties": {"type": "null"}},
    )

    @model_rule(mode="before")
    @classmethod
    def _without_nulls(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        if len(data) > MAX_FIELDS:
            raise PydanticCustomError("too_many", "{count} fields", {"count": len(data)})
        return {
            name: value
            for name, value in data.items()
            if value is not None or name in cls.model_fields
        }


class Body(Strict):
    """A whole body. Raises BadField or UnsupportedField for the first field that breaks a rule."""

    @model_rule(mode="wrap")
    @classmethod
    def _named(cls, data: object, read: ModelWrapValidatorHandler[Body]) -> Body:
        try:
            return read(data)
        except ValidationError as exc:
            raise field_error(exc, data) from None


class _NoQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")


NoQuery = Annotated[_NoQuery, Query()]
"""No query: a parameter is refused by its name."""


def unsupported(text: str) -> PydanticCustomError:
    """What a rule raises for a value that is fine, and cannot be honoured here."""
    return PydanticCustomError(_UNSUPPORTED, "{text}", {"text": text})


def broken(text: str) -> PydanticCustomError:
    """What a rule raises for a value that is wrong."""
    return PydanticCustomError("broken", "{text}", {"text": text})


def field_error(exc: ValidationError, data: object) -> BadRequest:
    """The error that names the field to blame, out of all that was found wrong with `data`."""
    found = exc.errors(include_url=False, include_input=False)
    top = found[0]["loc"][:1]
    # Where a value may be one of several kinds, what is wrong with it as the kind that it is.
    first = max((each for each in found if each["loc"][:1] == top), key=lambda e: _depth(e, data))
    path, kind = field_path(("body", *_place(first, data))), first["type"]
    if kind == "extra_forbidden":
        return UnsupportedField(path, "there is no such field")
    if kind in (_UNSUPPORTED, "literal_error"):
        return UnsupportedField(path, first["msg"])
    return BadField(path, f"{path or 'body'}: {first['msg']}"[:MAX_FAIL_CHARS])


def _depth(error: ErrorDetails, data: object) -> tuple[int, bool]:
    return len(_place(error, data)), not error["type"].endswith("_type")


def _place(error: ErrorDetails, data: object) -> list[int | str]:
    """Where an error is in the data: its `loc` also names kinds of value, and what is missing."""
    place: list[int | str] = []
    for step in error["loc"]:
        if _holds(data, step):
            data = data[step]  # type: ignore[index]  # as it just told
        elif error["type"] != "missing" or step != error["loc"][-1]:
            continue
        place.append(step)
    return place


def _holds(data: object, step: int | str) -> bool:
    if isinstance(data, list):
        return isinstance(step, int) and step < len(data)
    return isinstance(data, Mapping) and step in data
