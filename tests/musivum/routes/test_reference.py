"""docs/api.md against a run: its examples have the fields of real answers, its errors exist, and
its signature verifies."""

from __future__ import annotations

import json
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from musivum import admission, operator, probes
from musivum.config import MusivumConfig
from musivum.questions import OPERATOR, PUBLIC
from musivum.routes import BODIES
from musivum.routes.testing import Body, HttpNode, answering, http_node
from p2p.testing import MemoryNetwork
from tessella.core.contracts import contract_of
from tessella.core.errors import TessellaError
from tessella.core.identity import Identity, check_signature
from tessella.core.shape_json import encode_shape
from tessella.core.shapes import ModelShape, Rope
from tessella.core.signed_request import PURPOSE_HTTP, Request, sign_request, signed_text
from tessella.web.bodies import MAX_HEADER_BYTES, MAX_HEADER_LINES
from tessella.web.errors import type_of
from tessella.web.server import ServeLimits

REFERENCE = Path(__file__).parents[3] / "docs" / "api.md"
MUSIVUM_SEED = b"m" * 32
SEEDS = [bytes([number]) * 32 for number in (1, 2, 3)]
TOKEN = "the-operators-token"
MODEL = "smollm2-135m-instruct"
SHAPE = ModelShape(
    family="llama",
    layers=30,
    hidden=576,
    intermediate=1536,
    heads=9,
    kv_heads=3,
    head_dim=64,
    vocab=49152,
    context=8192,
    tied=True,
    rope=Rope(theta=100000.0),
)
SERVED: Body = {
    "model_id": MODEL,
    "total_layers": 30,
    "contract": contract_of(SHAPE),
    "shape": json.loads(encode_shape(SHAPE)),
    "context_size": 2048,
    "parallel_slots": 4,
}
CLAIMS = (376, 369, 347)
# In every row of errors: for these one has to be there before anything of a route is looked at.
EVERYWHERE = {400, 401, 403, 413, 429}


async def measured() -> dict[str, dict[str, Any]]:
    """Bodies and answers of every route, by a mesh of three nodes of which the last is loading."""
    net, seen = MemoryNetwork(), {}
    async with AsyncExitStack() as stack:
        door = await stack.enter_async_context(
            answering(net, MUSIVUM_SEED, MusivumConfig(), token=TOKEN)
        )
        nodes = [
            await stack.enter_async_context(http_node(net, seed, door)) for seed in SEEDS
        ]
        bearer = {"Authorization": f"Bearer {TOKEN}"}

        async def said(node: HttpNode, path: str, body: Body) -> None:
            answer = (await node.call(path, body)).raise_for_status()
            seen[f"POST {path}"] = {"body": body, "answer": answer.json()}

        async def read(path: str, **query: object) -> None:
            params = {key: str(value) for key, value in query.items()}
            answer = await door.client.get(path, params=params, headers=bearer)
            seen[f"GET {path}"] = {"answer": answer.json(), "status": answer.status_code}

        async def ordered(path: str, body: Body | None) -> None:
            answer = (await door.client.post(path, json=body, headers=bearer)).raise_for_status()
            seen[f"POST {path}"] = {"body": body, "answer": answer.json()}

        first, second, last = nodes
        for node, claim, layers in zip(nodes, CLAIMS, ([0, 9], [9, 22], [22, 30]), strict=True):
            api = f"http://{node.addrs[0].split('/')[2]}:8080"
            body = node.registration(
                **SERVED, vram_mb=claim, layers=layers if node is last else None, api_addr=api
            )
            await node.call("/register", body)
            if node is not last:
                await said(node, "/ready", {"layers": layers})
        beat = {"status": "Healthy", "role": "entry", "queue_depth": 1, "step_ms": 21.5}
        await said(first, "/announce", beat)
        load = {"status": "PendingLoad", "loaded_bytes": 0, "total_bytes": 52_000_000}
        await last.call("/announce", load)
        await trio.sleep(9)
        await last.call("/announce", {**load, "loaded_bytes": 20_800_000})
        await said(
            first,
            "/register",
            first.registration(
                **SERVED,
                vram_mb=CLAIMS[0],
                layers=[0, 9],
                kv_cache_type="f32",
                api_addr="http://10.0.0.2:8080",
            ),
        )
        await first.call("/ready", {"layers": [0, 9]})
        await said(first, "/report_failure", {"peer_id": second.peer_id, "code": "peer_silent"})
        for path in ("/peers", "/workers", "/model_health", "/weights/manifest"):
            await read(path, model_id=MODEL)
        for path in ("/api/network/models", "/weights/manifests", "/p2p_id", "/status"):
            await read(path)
        await read("/api/v1/assignment", model_id=MODEL, vram_mb=400)
        await read("/api/v1/chain", model_id=MODEL)
        seen["error"] = seen["GET /api/v1/chain"]
        await last.call("/ready", {"layers": [22, 30]})
        await read("/api/v1/chain", model_id=MODEL)
        await read("/reputation", peer_id=second.peer_id)
        await ordered("/weights/manifest", {
            "model_id": MODEL,
            "shape": SERVED["shape"],
            "files": [{"name": "model.gguf", "bytes": 98_879_136, "sha256": "5a" * 32}],
        })  # fmt: skip
        await read("/weights/manifest", model_id=MODEL)
        await read("/weights/manifests")
        await said(first, "/deregister", {})
        await second.register(**SERVED, vram_mb=700, layers=[0, 22])
        await second.call("/ready", {"layers": [0, 22]})
        await first.register(**SERVED, vram_mb=CLAIMS[0], layers=[22, 30])
        await first.call("/ready", {"layers": [22, 30]})
        await last.call("/deregister", {})
        await ordered("/rebalance", None)
    return seen
