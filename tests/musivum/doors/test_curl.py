"""The lines that people type, with curl and jq, against a musivum on the loopback interface."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from subprocess import CompletedProcess

import httpx
import pytest
import trio

from musivum.app import serve
from musivum.config import MusivumConfig
from musivum.store.memory import MemoryStore
from musivum.testing_http import HttpNode
from p2p.host import open_host
from tessella.core.identity import Identity

pytestmark = [
    pytest.mark.mesh,
    pytest.mark.skipif(
        not (shutil.which("curl") and shutil.which("jq")), reason="curl or jq is not installed"
    ),
]
LOOPBACK = "/ip4/127.0.0.1/tcp/0"
MUSIVUM_SEED = b"m" * 32
CONFIG = MusivumConfig(
    listen=(LOOPBACK,), http=("127.0.0.1:0",), min_vram_mb=0, allow_private_addrs=True
)
# In the order in which they register: the first two serve, the third loads.
APIS = ("http://127.0.0.1:8081", "http://127.0.0.1:8082", "http://127.0.0.1:8083")
SECONDS = 20


async def typed(url: str, line: str) -> list[str]:
    """The lines that a line of shell prints."""
    command = f"set -o pipefail; URL={url}; M=small; {line}"
    with trio.fail_after(SECONDS):
        done: CompletedProcess[bytes] = await trio.run_process(
            ["bash", "-c", command], capture_stdout=True
        )
    return done.stdout.decode().splitlines()


@asynccontextmanager
async def a_mesh() -> AsyncIterator[tuple[str, list[HttpNode]]]:
    """A musivum and three nodes, all of libp2p, of which two serve."""
    identity = Identity(MUSIVUM_SEED)
    async with (
        open_host(identity, listen=[LOOPBACK]) as host,
        open_host(Identity(b"1" * 32), listen=[LOOPBACK]) as a,
        open_host(Identity(b"2" * 32), listen=[LOOPBACK]) as b,
        open_host(Identity(b"3" * 32), listen=[LOOPBACK]) as c,
        httpx.AsyncClient() as client,
        trio.open_nursery() as nursery,
    ):
        program = partial(serve, host, identity, CONFIG, store=MemoryStore(), clock=time.time)
        listening = await nursery.start(program)
        (url,) = listening.http
        client.base_url = url
        nodes = [
            HttpNode(
                Identity(str(n + 1).encode() * 32),
                each.address.addrs,
                listening.peer.peer_id,
                client,
                time.time,
            )
            for n, each in enumerate((a, b, c))
        ]
        for node, api in zip(nodes, APIS, strict=True):
            await (node.register if api == APIS[2] else node.join)(api_addr=api)
        yield url, nodes
        nursery.cancel_scope.cancel()


async def test_what_people_type_prints_what_they_want() -> None:
    async with a_mesh() as (url, nodes):
        assert await typed(url, 'curl -s "$URL/peers?model_id=$M" | jq length') == ["3"]
        assert await typed(url, 'curl -s "$URL/peers?model_id=nobodys" | jq length') == ["0"]

        (models,) = await typed(url, "curl -s $URL/api/network/models")
        assert json.loads(models) == [
            {
                "model_id": "small",
                "active_workers": 2,
                "workers": 3,
                "health": "incomplete",
                "total_layers": 12,
            }
        ]

        line = """curl -s "$URL/model_health?model_id=$M" | jq '{health, covered_layers, holes}'"""
        assert json.loads("\n".join(await typed(url, line))) == {
            "health": "incomplete",
            "covered_layers": 10,
            "holes": [{"start": 10, "stop": 12, "claim_mb": 5}],
        }

        entry = (
            """curl -s "$URL/peers?model_id=$M" | jq -r """
            """'.[] | select(.canary == false and .status == "Healthy") | .http_api_url'"""
        )
        (first,) = await typed(url, f"{entry} | head -1")
        assert first in APIS[:2]
        assert sorted(await typed(url, entry)) == sorted(APIS[:2])

        (peer_id,) = await typed(url, "curl -s $URL/p2p_id | jq -r .peer_id")
        assert peer_id == Identity(MUSIVUM_SEED).peer_id

        line = """curl -s "$URL/api/v1/chain?model_id=$M" | jq -r .error.code"""
        assert await typed(url, line) == ["model_unavailable"]
        line = """curl -s -o /dev/null -w '%{http_code}' "$URL/api/v1/chain?model_id=$M" """
        assert await typed(url, line) == ["503"]
        head = await typed(url, "curl -sI $URL/p2p_id")
        assert head[0].strip() == "HTTP/1.1 200"
        (workers,) = await typed(url, "curl -s $URL/workers")
        assert "127.0.0.1" not in workers

        (await nodes[2].call("/ready", {"layers": [10, 12]})).raise_for_status()
        line = """curl -s "$URL/api/v1/chain?model_id=$M" | jq -c '[.chain[].layers]'"""
        assert await typed(url, line) == ["[[0,4],[4,10],[10,12]]"]
        (lines,) = await typed(url, "curl -s $URL/metrics | grep -c ^musivum_")
        assert int(lines) > 10
