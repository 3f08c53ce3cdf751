"""A musivum on the loopback interface with a small mesh, for what speaks HTTP by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from queue import Queue
from typing import Any

import httpx
import pytest
import trio

from musivum import operator
from musivum.app import open_rooms
from musivum.config import MusivumConfig
from musivum.routes import http_app
from musivum.store.memory import MemoryStore
from musivum.testing import clock
from musivum.testing_http import Door, HttpNode, http_node
from p2p.testing import MemoryNetwork
from tessella.core.identity import Identity
from tessella.core.signed_request import Request
from tessella.web.server import serve_http

MUSIVUM_SEED = b"m" * 32
TOKEN = "the-operators-token"
START_SECONDS = 10.0
# Nodes fall silent here, and their loads stand still: nobody beats for them.
CONFIG = MusivumConfig(
    min_vram_mb=0, allow_private_addrs=True, heartbeat_seconds=300.0, stall_seconds=3600.0
)
# Of one peer no more calls than that are remembered, so another goes on after some.
CALLS_EACH = 400
CALLERS = 16


@dataclass
class Live:
    """Where it answers, and keys of nodes that may call it."""

    url: str
    audience: str
    callers: list[HttpNode]
    ahead: float
    """Seconds its clock is ahead of `time.monotonic`."""
    token: str = TOKEN
    calls: int = 0

    def caller(self) -> HttpNode:
        """Who makes the next call."""
        return self.callers[self.calls // CALLS_EACH % CALLERS]

    def next_caller(self) -> HttpNode:
        """The same, once it makes it."""
        self.calls += 1
        return self.caller()

    def sign(self, caller: HttpNode, request: Request) -> dict[str, str]:
        """The headers of a call made now."""
        return caller.sign(request, self.ahead + time.monotonic())


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """Runs in a thread of its own until the test is done, and takes any number of wrong tokens."""
    monkeypatch.setattr(operator, "MAX_FAILURES", 1_000_000)
    started: Queue[Live | BaseException] = Queue()
    stop: list[tuple[trio.lowlevel.TrioToken, trio.CancelScope]] = []

    def run() -> None:
        try:
            trio.run(_live, started, stop)
        except BaseException as exc:  # noqa: BLE001 - the test that waits has to hear of it
            started.put(exc)

    thread = threading.Thread(target=run)
    thread.start()
    found = started.get(timeout=START_SECONDS)
    if isinstance(found, BaseException):
        raise found
    yield found
    ((token, scope),) = stop
    token.run_sync_soon(scope.cancel)
    thread.join(START_SECONDS)
    assert not thread.is_alive()


async def _live(
    started: Queue[Live | BaseException],
    stop: list[tuple[trio.lowlevel.TrioToken, trio.CancelScope]],
) -> None:
    net = MemoryNetwork()
    async with answering_on_loopback(net) as (url, door), trio.open_nursery() as nursery:
        callers = [await nursery.start(_node, net, number, door) for number in range(CALLERS + 4)]
        *callers, a, b, c, d = callers
        await a.join(api_addr=a.api_url)
        await b.join()
        await c.register()
        await c.call("/announce", {"status": "PendingLoad", "loaded_bytes": 1, "total_bytes": 4})
        await d.join(model_id="org/whole", vram_mb=2000)
        stop.append((trio.lowlevel.current_trio_token(), nursery.cancel_scope))
        started.put(Live(url, door.peer.peer_id, callers, clock() - time.monotonic()))


async def _node(net: MemoryNetwork, number: int, door: Door, *, task_status: Any) -> None:
    async with http_node(net, bytes([number + 1]) * 32, door) as node:
        task_status.started(node)
        await trio.sleep_forever()


@asynccontextmanager
async def answering_on_loopback(net: MemoryNetwork) -> AsyncIterator[tuple[str, Door]]:
    """A musivum of a memory network whose HTTP is real."""
    identity = Identity(MUSIVUM_SEED)
    config = CONFIG
    async with (
        net.host(identity) as host,
        open_rooms(host, identity, config, store=MemoryStore(), clock=clock, token=TOKEN) as opened,
        trio.open_nursery() as nursery,
    ):
        app = http_app(opened.rooms, opened.page, opened.metrics, rate=None)
        (url,) = await nursery.start(serve_http, app, ("127.0.0.1:0",))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=url) as client:
            yield url, Door(host.address, opened, client)
        nursery.cancel_scope.cancel()
