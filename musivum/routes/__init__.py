"""The HTTP door: routes that are each a thin way to the room that libp2p leads to as well."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from musivum.doors.status import StatusPage
from musivum.doors.tracker import Rooms
from musivum.federation.asking import SNAPSHOT
from musivum.metrics import Metrics
from musivum.routes.federation import add_federation_routes
from musivum.routes.ledger import BATCH, add_ledger_routes
from musivum.routes.operators import add_operator_routes
from musivum.routes.public import add_ledger_pages, add_public_routes
from musivum.routes.signed import add_signed_routes
from tessella import __version__
from tessella.core.frames import KIB, MIB
from tessella.core.manifest import MAX_MANIFEST_BYTES
from tessella.web.app import make_app
from tessella.web.bodies import BodyCaps
from tessella.web.limits import RateLimits

# A registration carries addresses and a shape; a manifest, some hundred files; a batch, 256 proofs.
BODIES = BodyCaps(
    larger={
        "/register": 256 * KIB,
        "/weights/manifest": MAX_MANIFEST_BYTES,
        BATCH: 3 * MIB // 2,
    }
)


def http_app(rooms: Rooms, page: StatusPage, metrics: Metrics, rate: RateLimits | None) -> FastAPI:
    """Every route, and their OpenAPI document at `/openapi.json`. `rate` None limits nobody."""
    app = make_app(
        "musivum",
        __version__,
        rate=rate,
        bodies=BODIES,
        clock=rooms.books.clocks.wall,
        heard=metrics.refused,
    )
    add_public_routes(app, rooms.answers, page, metrics)
    add_ledger_pages(app, rooms.ledger_pages)
    add_signed_routes(app, rooms)
    add_ledger_routes(app, rooms)
    add_federation_routes(app, rooms)
    add_operator_routes(app, rooms, apart={SNAPSHOT})
    app.add_middleware(HeadAsGet)
    return app


class HeadAsGet:
    """Middleware: HEAD is answered as GET is. The server keeps the body back, which still sees the
    method that came."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        asked = {**scope, "method": "GET"} if scope.get("method") == "HEAD" else scope
        await self._app(asked, receive, send)
