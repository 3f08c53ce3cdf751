"""What only the operator may do: every route takes `Authorization: Bearer <admin token>`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from typing import Annotated, Any

import trio
from fastapi import Body, Depends, FastAPI, Query, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from musivum.doors.questions import OPERATOR, Question
from musivum.doors.tracker import Rooms
from musivum.operator import Operator
from musivum.routes.public import Nothing, described
from tessella.web.errors import answers

_BEARER = HTTPBearer(
    scheme_name="AdminToken", description="The operator's token.", auto_error=False
)
Credentials = Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)]


def admin_of(rooms: Rooms) -> Callable[[Request, Credentials], Awaitable[None]]:
    """What raises AdminOnly, or TooManyRequests, for who is not the operator."""

    async def admin(request: Request, given: Credentials) -> None:
        token = given.credentials.strip() if given else ""
        source = request.client.host if request.client else ""
        rooms.gate.check(token, source, trio.current_time())

    return admin


def add_operator_routes(app: FastAPI, rooms: Rooms, *, apart: Container[str] = ()) -> None:
    """One route for each order, those excepted whose paths are `apart`."""
    admin = admin_of(rooms)
    for question in OPERATOR.values():
        if question.path in apart:
            continue
        app.add_api_route(
            question.path,
            _endpoint(question, rooms.operator),
            methods=[question.method],
            response_model=question.gives,
            responses=answers(401, 429, *question.refusals, *_of_body(question)),
            dependencies=[Depends(admin)],
            **described(question),
        )


def _of_body(question: Question[Any]) -> tuple[int, ...]:
    return (413,) if question.method == "POST" else ()


def _endpoint(question: Question[Any], operator: Operator) -> Callable[..., Awaitable[Any]]:
    async def endpoint(asked: Any) -> Any:  # noqa: ANN401 - the question says which
        return await question.answer(operator, asked)

    async def posted(asked: Any, _: Nothing) -> Any:  # noqa: ANN401 - the question says which
        return await question.answer(operator, asked)

    if question.method == "GET" or not question.takes.model_fields:
        endpoint.__annotations__ = {"asked": Annotated[question.takes, Query()]}
        return endpoint
    posted.__annotations__ = {"asked": Annotated[question.takes, Body()], "_": Nothing}
    return posted
