"""A FastAPI app of this house: its errors, its limits, and an OpenAPI that tells the truth."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tessella.core.errors import LocalError
from tessella.web.bodies import DEFAULT_BODIES, BodyCaps, BodyLimits
from tessella.web.errors import RealJson, answers, error_answer, told_error
from tessella.web.limits import DEFAULT_RATE, RateLimiter, RateLimits
from tessella.web.origins import OwnPages

_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
_LOG = logging.getLogger(__name__)

Clock = Callable[[], float]
Heard = Callable[[str], None]
"""Takes the code of an error that was answered."""


def _unheard(_: str) -> None:
    """Nobody counts."""


def make_app(
    title: str,
    version: str,
    *,
    bodies: BodyCaps = DEFAULT_BODIES,
    rate: RateLimits | None = DEFAULT_RATE,
    pages: Collection[str] | None = None,
    clock: Clock = time.time,
    heard: Heard = _unheard,
) -> FastAPI:
    """An app without routes. `clock` gives unix seconds; `rate` None limits nobody; `pages` are
    hosts whose pages may ask beside our own, and None lets those of everybody; `heard` is told each
    error that is answered.

    Routes raise errors of the tree and return values; nothing of the app runs at start or stop,
    since whoever serves it owns what it uses. OpenAPI is at /openapi.json; there are no pages
    that show it, because they load scripts from a host of others.
    """

    async def refuse(request: Request, exc: Exception) -> Response:
        return _answer(exc, request.scope, clock(), heard)

    app = _App(
        title=title,
        version=version,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
        default_response_class=RealJson,
        responses=answers(400, *([] if pages is None else [403]), *([] if rate is None else [429])),
        exception_handlers={HTTPException: refuse, RequestValidationError: refuse},
    )
    # The last one added is the first to see a request.
    app.add_middleware(BodyLimits, caps=bodies)
    if rate is not None:
        app.add_middleware(RateLimiter, limits=rate)
    if pages is not None:
        app.add_middleware(OwnPages, hosts=pages)
    app.add_middleware(ErrorAnswers, clock=clock, heard=heard)
    return app


class ErrorAnswers:
    """Answers with the error that the app raises; see `error_answer`.

    An answer that has begun cannot be changed: the error goes on, for the connection to end.
    """

    def __init__(self, app: ASGIApp, clock: Clock = time.time, heard: Heard = _unheard) -> None:
        self._app = app
        self._clock = clock
        self._heard = heard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sent)
        except Exception as exc:  # a bug in one route is that request's alone
            if begun or scope["type"] != "http":
                raise
            answer = _answer(exc, scope, self._clock(), self._heard)
            await answer(scope, receive, send)


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        schema = super().openapi()
        for path in schema.get("paths", {}).values():
            for operation in path.values():
                # FastAPI documents what it would answer, had it been left to.
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            schema.get("components", {}).get("schemas", {}).pop(name, None)
        return schema


def _answer(exc: Exception, scope: Scope, now: float, heard: Heard) -> Response:
    error = told_error(exc, scope["path"])
    heard(LocalError.code if error is None else error.code)
    if error is None:
        _LOG.error("%s %s failed by a bug", scope["method"], scope["path"], exc_info=exc)
    elif error.status >= 500 and not error.retry:
        _LOG.warning("%s %s: %s", scope["method"], scope["path"], error, exc_info=exc)
    headers = {"Allow": _allowed(scope)} if error is not None and error.status == 405 else None
    return error_answer(error, now=now, headers=headers)


def _allowed(scope: Scope) -> str:
    """The methods of a path. Routes of one path are many, and each knows only its own."""
    asked = {key: scope[key] for key in ("type", "path", "root_path", "headers")}
    return ", ".join(
        method
        for method in _METHODS
        if any(
            route.matches({**asked, "method": method})[0] is Match.FULL
            for route in scope["app"].router.routes
        )
    )
