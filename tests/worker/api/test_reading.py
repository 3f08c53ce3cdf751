"""Bodies are bounded before they are read, and errors name the very field."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import httpx
import pytest
from fastapi import APIRouter
from pydantic import Field

from tessella.core.errors import BadRequest, UnsupportedField
from tessella.web.app import make_app
from tessella.web.errors import BadField
from tessella.worker.api.reading import (
    MAX_FIELDS,
    MAX_VALUES,
    Body,
    JsonRoute,
    NoQuery,
    Strict,
    parse_json,
    unsupported,
)


class Inner(Strict):
    kind: Literal["a", "b"]
    number: int | None = None


class Example(Body):
    inner: list[Inner] | None = None
    text: str | Annotated[list[Annotated[str, Field(max_length=3)]], Field(max_length=2)] = ""
    share: float | None = Field(default=None, ge=0, le=1)


@pytest.mark.parametrize(
    ("data", "kind", "param", "message"),
    [
        ({"texd": 1}, UnsupportedField, "texd", "texd: there is no such field"),
        (
            {"inner": [{"kind": "a"}, {"kind": "a", "x": 0}]},
            UnsupportedField,
            "inner[1].x",
            "inner[1].x: there is no such field",
        ),
        (
            {"inner": [{"kind": "c"}]},
            UnsupportedField,
            "inner[0].kind",
            "inner[0].kind: Input should be 'a' or 'b'",
        ),
        ({"inner": [{}]}, BadField, "inner[0].kind", "inner[0].kind: Field required"),
        ({"inner": {}}, BadField, "inner", "inner: Input should be a valid list"),
        (
            {"text": ["ab", "abcd"]},
            BadField,
            "text[1]",
            "text[1]: String should have at most 3 characters",
        ),
        ({"text": 7}, BadField, "text", "text: Input should be a valid string"),
        (
            {"share": 2},
            BadField,
            "share",
            "share: Input should be less than or equal to 1",
        ),
        ({"share": "1"}, BadField, "share", "share: Input should be a valid number"),
        ({"share": True}, BadField, "share", "share: Input should be a valid number"),
        (
            {f"x{number}": 1 for number in range(MAX_FIELDS + 1)},
            BadField,
            "",
            f"body: {MAX_FIELDS + 1} fields",
        ),
    ],
)
def test_the_first_field_that_breaks_a_rule_is_named(
    data: dict[str, Any], kind: type[BadField | UnsupportedField], param: str, message: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        Example.model_validate(data)
    error = caught.value
    assert isinstance(error, BadField | UnsupportedField)
    assert isinstance(error, kind)
    assert (error.field, str(error), error.status) == (param, message, 400)


@pytest.mark.parametrize(
    "data",
    [{}, {"anything": None}, {"inner": None, "share": None}, {"inner": [{"kind": "a", "x": None}]}],
)
def test_null_asks_for_nothing(data: dict[str, Any]) -> None:
    Example.model_validate(data)


def test_the_document_says_so() -> None:
    assert Example.model_json_schema()["additionalProperties"] == {"type": "null"}


def test_a_rule_may_say_that_something_cannot_be_honoured() -> None:
    assert str(unsupported("a {b}")) == "a {b}"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"a": NaN}',
        b'"\\ud800"',
        b"\xff",
        b"[" * 60_000,
        b"1" * 5000,
        b"nul",
    ],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match="body: not JSON"):
        parse_json(body)


MANY = MAX_VALUES + 1


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * MANY + b"[]]",
        b"[" + b"1," * MANY + b"1]",
        b"[" + b"{}," * MANY + b"{}]",
        b"[" + b'"",' * 3 * MANY + b'""]',
        b"{" + b'"a":1,' * MANY + b'"a":1}',
    ],
    ids=["arrays", "numbers", "objects", "strings", "fields"],
)
def test_more_values_than_a_request_has_are_not_read(body: bytes) -> None:
    with pytest.raises(BadRequest, match=f"more than {MAX_VALUES} values"):
        parse_json(body)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("," * 200_000, "," * 200_000),
        ('"' * 200_000, '\\"' * 200_000),
        ("[{" * 100_000, "[{" * 100_000),
        ("\\" * 100_000, "\\\\" * 100_000),
        ('\\"' * 100_000 + "," * 100_000, '\\\\\\"' * 100_000 + "," * 100_000),
    ],
)
def test_a_text_may_hold_anything(text: str, escaped: str) -> None:
    assert parse_json(b'{"a": "' + escaped.encode() + b'"}') == {"a": text}


@pytest.fixture
async def client() -> httpx.AsyncClient:
    app = make_app("Example", "1", rate=None)
    router = APIRouter(route_class=JsonRoute)

    @router.post("/")
    async def example(body: Example, _: NoQuery) -> dict[str, Any]:
        return body.model_dump()

    @router.get("/")
    async def nothing(_: NoQuery) -> str:
        return "here"

    app.include_router(router)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://node.test")


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("text/plain", b"{}", "Content-Type: application/json is read here, not 'text/plain'"),
        (None, b"{}", "Content-Type: application/json is read here, not ''"),
        ("application/json", b"{", "body: not JSON: EOF while parsing an object"),
        ("application/json", b"[]", "body: Input should be a valid dictionary"),
        ("application/json", b"null", "body: Input should be a valid dictionary"),
        ("application/json", b"", "body: Field required"),
        ("application/json", b'{"a": 1}', "a: there is no such field"),
    ],
)
async def test_what_is_no_json_object_is_told_in_one_line(
    client: httpx.AsyncClient, kind: str | None, body: bytes, message: str
) -> None:
    headers = {"Content-Type": kind} if kind else {}
    answer = await client.post("/", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(message)


async def test_a_body_is_read_with_a_charset_and_a_query_is_refused(
    client: httpx.AsyncClient,
) -> None:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    answer = await client.post("/", content=b'{"text": "\xe6\xb1\x89"}', headers=headers)
    assert answer.json()["text"] == "汉"
    refused = await client.post("/?stream=true", content=b"{}", headers=headers)
    assert refused.json()["error"]["param"] == "stream"
    assert (await client.get("/")).json() == "here"
