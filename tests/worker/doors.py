"""The HTTP API of nodes on a memory network, without a socket.

doors = Doors(monkeypatch)
async with open_mesh([3, 3], **doors.config) as mesh, doors.client(mesh.nodes[0]) as client:
    status = (await client.get("/status")).json()
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio
from fastapi import FastAPI

from tessella.core.ids import PeerId
from tessella.worker import node as node_module
from tessella.worker.door import Door, NodeRooms
from tests.worker.conftest import Node

# Nobody listens there, and no other node is told of it.
NOWHERE = "http://127.0.0.1:8080"


class Doors:
    """The doors of all nodes that begin while this stands in for what opens them."""

    config: dict[str, Any] = {"http": ("127.0.0.1:0",)}  # noqa: RUF012 - it is read alone
    """What a node has to be configured with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        apps: dict[PeerId, FastAPI] = {}
        rooms: dict[PeerId, NodeRooms] = {}

        class Opened(Door):
            def __init__(self, config: Any, ground: Any, all_rooms: Any, nursery: Any) -> None:
                super().__init__(config, ground, all_rooms, nursery)
                apps[ground.identity.peer_id] = self.app
                rooms[ground.identity.peer_id] = all_rooms

        async def serve_bound(*args: Any, **options: Any) -> None:
            await trio.sleep_forever()

        monkeypatch.setattr(node_module, "Door", Opened)
        monkeypatch.setattr(node_module, "bound", _bound)
        monkeypatch.setattr(node_module, "bound_url", lambda _: NOWHERE)
        monkeypatch.setattr(node_module, "serve_bound", serve_bound)
        self._apps, self._rooms = apps, rooms

    def rooms(self, node: Node) -> NodeRooms:
        """What the door of a node leads to."""
        return self._rooms[node.identity.peer_id]

    @asynccontextmanager
    async def client(self, node: Node) -> AsyncIterator[httpx.AsyncClient]:
        """Who calls at the door of a node."""
        transport = httpx.ASGITransport(self._apps[node.identity.peer_id])
        async with httpx.AsyncClient(transport=transport, base_url="http://node.test") as client:
            yield client


@asynccontextmanager
async def _bound(listen: Any) -> AsyncIterator[list[object]]:
    yield [object()]
