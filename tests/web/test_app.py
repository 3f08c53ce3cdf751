"""An app's errors, limits and OpenAPI, called in process."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio
from fastapi import APIRouter, FastAPI, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from tessella.core.errors import AdminOnly, BodyTooLarge, ModelUnavailable
from tessella.web.app import make_app
from tessella.web.bodies import BodyCaps
from tessella.web.errors import ErrorBody, answers
from tessella.web.limits import RateLimits

NOW = 1_800_000_000.0


class Claim(BaseModel):
    """A body with a rule."""

    vram_mb: int = Field(ge=256)


class Measured(BaseModel):
    """An answer that holds what JSON does not."""

    rate: float


def example() -> FastAPI:
    app = make_app("Example", "1.2.3", clock=lambda: NOW, bodies=BodyCaps(larger={"/big": 200_000}))
    routes = APIRouter(prefix="/api")

    @routes.get("/claim", responses=answers(401, 409))
    async def claim(vram_mb: int = Query(ge=256)) -> int:
        return vram_mb

    @routes.post("/claim")
    async def register(body: Claim) -> Claim:
        return body

    app.include_router(routes)

    @app.get("/fails/{how}")
    async def fails(how: str) -> None:
        if how == "admin":
            raise AdminOnly("an admin token is needed")
        if how == "hole":
            raise ModelUnavailable("a hole", retry_after=2.5, missing=[[0, 2]])
        if how == "group":
            async with trio.open_nursery():
                raise ModelUnavailable("in a nursery")
        raise KeyError("a secret")

    @app.get("/nan")
    async def nan() -> Measured:
        return Measured(rate=math.nan)

    @app.get("/nan/raw", response_model=None)
    async def raw() -> Any:
        return {"rate": math.inf}

    @app.post("/big")
    async def big(body: dict[str, Any]) -> int:
        return len(str(body))

    @app.get("/torn")
    async def torn() -> StreamingResponse:
        async def text() -> AsyncIterator[str]:
            yield "begun"
            raise KeyError("too late")

        return StreamingResponse(text())

    return app


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(example())
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as opened:
        yield opened


def told(response: httpx.Response) -> tuple[int, str, str]:
    body = ErrorBody.model_validate_json(response.content, strict=True).error
    assert response.headers["content-type"] == "application/json"
    return response.status_code, body.code, body.message


async def test_a_route_answers(client: httpx.AsyncClient) -> None:
    assert (await client.get("/api/claim?vram_mb=256")).json() == 256
    assert (await client.post("/api/claim", json={"vram_mb": 300})).json() == {"vram_mb": 300}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/nowhere", (404, "unknown_route", "nothing is answered at /nowhere")),
        ("/api/claim/", (404, "unknown_route", "nothing is answered at /api/claim/")),
        ("/docs", (404, "unknown_route", "nothing is answered at /docs")),
        ("/redoc", (404, "unknown_route", "nothing is answered at /redoc")),
        ("/api/claim", (400, "bad_request", "query.vram_mb: Field required")),
        ("/api/claim?vram_mb=1",
         (400, "bad_request", "query.vram_mb: Input should be greater than or equal to 256")),
        ("/fails/admin", (401, "admin_only", "an admin token is needed")),
        ("/fails/hole", (503, "model_unavailable", "a hole")),
        ("/fails/group", (503, "model_unavailable", "in a nursery")),
    ],
)  # fmt: skip
async def test_every_refusal_has_the_one_shape(
    client: httpx.AsyncClient, path: str, expected: tuple[int, str, str]
) -> None:
    assert told(await client.get(path)) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "body: not JSON: Expecting property name enclosed in double quotes at character 1"),
        (b"", "body: Field required"),
        (b'{"vram_mb": "many"}', "body.vram_mb: Input should be a valid integer"),
        (b"\xff", "There was an error parsing the body"),
        (b"[" * 60_000, "There was an error parsing the body"),
        (b"1" * 5_000, "There was an error parsing the body"),
        (b'{"vram_mb": NaN}', "body.vram_mb: Input should be a finite number"),
    ],
    ids=["torn", "empty", "wrong", "bytes", "deep", "digits", "nan"],
)
async def test_a_body_that_cannot_be_read_is_the_senders_fault(
    client: httpx.AsyncClient, content: bytes, message: str
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = told(await client.post("/api/claim", content=content, headers=headers))
    assert answer[:2] == (400, "bad_request")
    assert answer[2].startswith(message)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("PUT", "/api/claim", "GET, POST"), ("POST", "/fails/x", "GET"), ("BREW", "/big", "POST")],
)
async def test_a_wrong_method_learns_the_right_ones(
    client: httpx.AsyncClient, method: str, path: str, allowed: str
) -> None:
    answer = await client.request(method, path)
    assert told(answer)[:2] == (405, "method_not_allowed")
    assert answer.headers["allow"] == allowed


async def test_a_bug_is_logged_and_not_told(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = await client.get("/fails/bug")
    assert told(answer)[:2] == (500, "internal_error")
    assert "secret" not in answer.text
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)


async def test_an_answer_that_has_begun_is_cut_not_continued(client: httpx.AsyncClient) -> None:
    with pytest.raises(KeyError, match="too late"):
        await client.get("/torn")


async def test_headers_go_with_the_errors_that_have_them(client: httpx.AsyncClient) -> None:
    assert (await client.get("/fails/admin")).headers["tessella-time"] == "1800000000"
    hole = await client.get("/fails/hole")
    assert hole.headers["retry-after"] == "3"
    assert hole.json()["error"]["details"] == {"missing": [[0, 2]]}


async def test_numbers_that_json_lacks_are_null(client: httpx.AsyncClient) -> None:
    assert (await client.get("/nan")).json() == {"rate": None}
    assert (await client.get("/nan/raw")).json() == {"rate": None}


async def test_caps_of_bodies_hold_by_path(client: httpx.AsyncClient) -> None:
    large = {"x": "x" * 100_000}
    assert (await client.post("/big", json=large)).status_code == 200
    refused = await client.post("/api/claim", json=large)
    assert told(refused) == (413, "body_too_large", str(BodyTooLarge(65_536)))


async def test_openapi_says_what_is_answered() -> None:
    transport = httpx.ASGITransport(example())
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        schema = (await client.get("/openapi.json")).json()
    assert (schema["info"]["title"], schema["info"]["version"]) == ("Example", "1.2.3")
    assert set(schema["components"]["schemas"]) == {"Claim", "ErrorBody", "ErrorDetail", "Measured"}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
    operations = {
        (path, method): operation["responses"]
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    }
    assert set(operations["/api/claim", "get"]) == {"200", "400", "401", "409", "429"}
    for responses in operations.values():
        assert {"400", "429"} <= set(responses)
        assert "422" not in responses
        for status in set(responses) - {"200"}:
            assert responses[status]["content"] == error


@pytest.mark.parametrize(("rate", "last"), [(RateLimits(burst=3), 429), (None, 200)])
async def test_who_asks_too_fast_is_told_so(rate: RateLimits | None, last: int) -> None:
    app = make_app("Example", "1", rate=rate)

    @app.get("/")
    async def root() -> int:
        return 1

    transport = httpx.ASGITransport(app, client=("203.0.113.7", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        seen = [await client.get("/") for _ in range(4)]
    assert [each.status_code for each in seen] == [200, 200, 200, last]
    assert seen[3].headers.get("retry-after") == ("1" if last == 429 else None)
