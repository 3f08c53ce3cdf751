"""The app of a node: its completion routes, and what it tells of itself."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from fastapi import APIRouter, FastAPI

from tessella import __version__
from tessella.core.completions import MAX_REQUEST_BYTES
from tessella.web.app import make_app
from tessella.web.bodies import BodyCaps
from tessella.web.limits import RateLimits
from tessella.worker.api import chat, text
from tessella.worker.api.about import add_about_routes
from tessella.worker.api.catalogue import add_model_routes
from tessella.worker.api.metrics import Metrics
from tessella.worker.api.reading import JsonRoute
from tessella.worker.api.rooms import Clock, Rooms

BODIES = dict.fromkeys((chat.PATH, text.COMPLETIONS, text.GENERATE, text.FILL), MAX_REQUEST_BYTES)


def node_app(
    rooms: Rooms,
    *,
    rate: RateLimits | None = None,
    clock: Clock = time.time,
    bodies: Mapping[str, int] | None = None,
    pages: Collection[str] = (),
) -> FastAPI:
    """Every route that leads to `rooms`, and their OpenAPI document at /openapi.json.

    `rate` None limits nobody; `clock` gives unix seconds; `bodies` are caps, in bytes by path, for
    routes that others add and that count their bodies themselves; `pages` are hosts whose pages in
    a browser may ask.
    """
    metrics = Metrics(rooms)
    app = make_app(
        "Tessella node",
        __version__,
        rate=rate,
        bodies=BodyCaps(larger={**BODIES, **(bodies or {})}, apart=frozenset(bodies or ())),
        pages=pages,
        clock=clock,
        heard=metrics.refused,
    )
    router = APIRouter(route_class=JsonRoute, generate_unique_id_function=lambda each: each.name)
    chat.add_chat_route(router, rooms, clock, metrics.refused)
    text.add_text_routes(router, rooms, clock, metrics.refused)
    add_model_routes(router, rooms)
    add_about_routes(router, rooms, metrics)
    app.include_router(router)
    return app
