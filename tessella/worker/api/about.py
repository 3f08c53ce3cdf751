"""How the node is: GET /health for a load balancer, /status for its owner, /metrics for a graph."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from tessella.core.peers import NodeStatus
from tessella.web.errors import RealJson, answers
from tessella.worker.api.metrics import CONTENT_TYPE, Metrics
from tessella.worker.api.reading import NoQuery
from tessella.worker.api.rooms import Rooms

_TEXT = {
    "description": "Prometheus' text format.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}


class Healthy(BaseModel):
    """The node answers."""

    status: Literal["ok"] = "ok"
    node: str = NodeStatus.HEALTHY.value


def add_about_routes(router: APIRouter, rooms: Rooms, metrics: Metrics) -> None:
    """Add the three routes."""

    async def health(_: NoQuery) -> Healthy:
        """Whether the node takes requests."""
        if rooms.health() is not NodeStatus.HEALTHY:
            raise rooms.unavailable()
        return Healthy()

    router.add_api_route("/health", health, summary="/health", responses=answers(429, 503))
    # Some balancers look at no more than the status.
    router.add_api_route("/health", health, methods=["HEAD"], include_in_schema=False)

    @router.get("/status", summary="/status", response_model=dict[str, Any], responses=answers(429))
    async def status(_: NoQuery) -> Response:
        """Model, layers, memory, the numbers of the deal, counters. Keys are only ever added."""
        return RealJson(dict(rooms.status()))

    @router.get(
        "/metrics",
        summary="/metrics",
        response_class=Response,
        responses={200: _TEXT, **answers(429)},
    )
    async def prometheus(_: NoQuery) -> Response:
        """Counters, for Prometheus."""
        return Response(metrics.text(), media_type=CONTENT_TYPE)
