"""Records to keep, and children to kill while they keep them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from musivum.store import SavedNode
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange

NODE = SavedNode(
    peer_id=PeerId("12D3KooWA"),
    model=ModelId("toy"),
    contract="c" * 64,
    layers=LayerRange(0, 4),
    status="Healthy",
    addrs=("/ip4/192.0.2.1/tcp/4001",),
    api_url="http://192.0.2.1:8000",
    device="cpu",
    dtype="f32",
    claim_mb=512,
    context=2048,
    slots=4,
    kv="f16",
    shape=b'{"layers":8}',
    joined_at=1_700_000_000.25,
    seen_at=1_700_000_001.5,
    is_ready=True,
    queue_depth=3,
    step_ms=12.5,
    weights="q4_1",
)

# Says "open" when it has the store, and the number of each save that returned.
KEEPER = """
import dataclasses, sys, trio
from musivum.store import PutNode, PutReputation, SavedReputation, open_store

async def main(url, saves, ends):
    async with open_store(url, wait=lambda: print("waits", flush=True)) as store:
        print("open", flush=True)
        number = len((await store.load()).reputation)
        while saves:
            await store.save(PutReputation(SavedReputation(peer_id=str(number), joins=number)))
            print(number, flush=True)
            number, saves = number + 1, saves - 1
        if not ends:
            await trio.sleep_forever()

trio.run(main, sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True")
"""


@pytest.fixture(scope="session")
def a_node() -> Callable[..., SavedNode]:
    """A node; keyword arguments change it."""

    def made(peer_id: str = "12D3KooWA", **changes: Any) -> SavedNode:
        return replace(NODE, peer_id=PeerId(peer_id), **changes)

    return made


@pytest.fixture
def keeper() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`keeper(url, saves)`: a process that has the store of a URL, until it is killed."""
    children: list[subprocess.Popen[str]] = []

    def started(
        url: str, saves: int = 0, *, ends: bool = False, before: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        argv = [*before, sys.executable, "-c", KEEPER, url, str(saves), str(ends)]
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        children.append(child)
        return child

    yield started
    for child in children:
        child.kill()
        child.wait(10)
        assert child.stdout is not None
        child.stdout.close()
