"""What anyone may read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import FastAPI, Query, Response

from musivum.bodies.fields import NoArguments
from musivum.doors.answers import Answers
from musivum.doors.questions import LEDGER, PUBLIC, Question
from musivum.doors.status import StatusPage
from musivum.metrics import CONTENT_TYPE, Metrics
from musivum.pages.ledger import LedgerPages
from tessella.web.errors import answers

Nothing = Annotated[NoArguments, Query()]
"""No query: a parameter is refused by its name."""
_STRING = {"type": "string"}
_TEXT = {"description": "Prometheus' text format.", "content": {"text/plain": {"schema": _STRING}}}
Endpoint = Callable[..., Awaitable[Any]]


def add_ledger_pages(app: FastAPI, pages: LedgerPages) -> None:
    """One route for each public question about the ledger."""
    for question in LEDGER.values():
        app.add_api_route(
            question.path,
            _awaited(question, pages),
            response_model=question.gives,
            responses=answers(429, *question.refusals),
            **described(question),
        )


def add_public_routes(app: FastAPI, given: Answers, page: StatusPage, metrics: Metrics) -> None:
    """One route for each public question, `/status` and `/metrics`."""
    for question in PUBLIC.values():
        app.add_api_route(
            question.path,
            _endpoint(question, given),
            response_model=question.gives,
            responses=answers(429, *question.refusals),
            **described(question),
        )

    @app.get("/status", operation_id="status", summary="/status", responses=answers(429))
    async def status(_: Nothing) -> dict[str, Any]:
        """How this musivum is: nodes by status, models, frames by kind."""
        return page.document()

    @app.get(
        "/metrics",
        operation_id="metrics",
        summary="/metrics",
        response_class=Response,
        responses={200: _TEXT, **answers(429)},
    )
    async def prometheus(_: Nothing) -> Response:
        """The same for Prometheus, as text."""
        return Response(metrics.text(), media_type=CONTENT_TYPE)


def _endpoint(question: Question[Any], given: Answers) -> Endpoint:
    async def endpoint(asked: Any) -> Response:  # noqa: ANN401 - the question says which
        return Response(given.json(question, asked), media_type="application/json")

    endpoint.__annotations__ = {"asked": Annotated[question.takes, Query()]}
    return endpoint


def _awaited(question: Question[Any], pages: LedgerPages) -> Endpoint:
    async def endpoint(asked: Any) -> Any:  # noqa: ANN401 - the question says which
        return await question.answer(pages, asked)

    endpoint.__annotations__ = {"asked": Annotated[question.takes, Query()]}
    return endpoint


def described(question: Question[Any]) -> dict[str, Any]:
    """The words of a question in the OpenAPI document: those of the method that answers it,
    without what they say to a programmer."""
    doc = " ".join((question.answer.__doc__ or "").partition("Raises")[0].split())
    return {
        "name": question.answer.__name__,
        "operation_id": question.answer.__name__,
        "summary": question.path,
        "description": doc,
    }
