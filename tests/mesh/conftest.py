"""A mesh of real processes with the real model, for as many tests as can share it."""

from __future__ import annotations

import os
import queue
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio

from p2p.peers import Host
from tessella.catalogue import LocalModel
from tessella.cli.discovery import client_host
from tessella.cli.mesh import Mesh, MeshPlan, open_mesh
from tessella.cli.processes import python_program
from tessella.cli.up import UpOptions, plan_mesh
from tessella.client import ask_peers, ask_status, complete
from tessella.core.addresses import PeerAddress
from tessella.core.completions import ChatMessage, CompletionRequest
from tessella.core.ids import ModelId
from tessella.core.messages import Begun, Delta, Done
from tessella.core.peers import choose_entry
from tessella.core.sampling import Sampling
from tessella.core.shapes import DType

MODEL = ModelId("smollm2")
# All of the model's: a prompt of 24 KB has to fit.
CONTEXT = 8192


@dataclass
class Said:
    """One answer, whole."""

    begun: Begun
    ids: list[int] = field(default_factory=list)
    deltas: list[str] = field(default_factory=list)
    done: Done | None = None

    @property
    def text(self) -> str:
        return "".join(self.deltas)


@dataclass
class RealMesh:
    """A mesh that runs, and a client of it."""

    host: Host
    musivum: PeerAddress
    plan: MeshPlan
    ranges: list[tuple[int, int]]

    async def entry(self) -> PeerAddress:
        row = choose_entry(await ask_peers(self.host, self.musivum))
        return PeerAddress(row.peer_id, row.addrs)

    async def ask(
        self,
        prompt: str,
        *,
        raw: bool = False,
        max_tokens: int,
        at: PeerAddress | None = None,
        heard: Callable[[Said], None] = lambda _: None,
    ) -> Said:
        """The greedy answer to one message, or the continuation of a raw text."""
        request = CompletionRequest(
            model=MODEL,
            messages=() if raw else (ChatMessage("user", prompt),),
            prompt=prompt if raw else "",
            sampling=Sampling(max_tokens=max_tokens),
        )
        said = None
        node = at or await self.entry()
        async with aclosing(complete(self.host, node, request)) as events:  # type: ignore[type-var, unused-ignore]
            async for event in events:
                if isinstance(event, Begun):
                    said = Said(event)
                elif isinstance(event, Delta) and said:
                    said.ids.append(event.token_id)
                    said.deltas.append(event.text)
                    heard(said)
                elif isinstance(event, Done) and said:
                    said.done = event
        assert said is not None
        return said

    async def statuses(self) -> list[dict[str, Any]]:
        """What the stages say of themselves, in the order of their layers."""
        rows = await ask_peers(self.host, self.musivum)
        rows.sort(key=lambda row: row.layers.start)
        return [await ask_status(self.host, PeerAddress(row.peer_id, row.addrs)) for row in rows]


@contextmanager
def mesh_in_thread(plan: MeshPlan) -> Iterator[Mesh]:
    """A mesh beside the tests: each of these has a trio loop of its own."""
    opened: queue.SimpleQueue[tuple[Mesh, Callable[[], None]] | None] = queue.SimpleQueue()

    async def live() -> None:
        token, stop = trio.lowlevel.current_trio_token(), trio.Event()
        async with open_mesh(plan, lambda name, event: None) as mesh:
            opened.put((mesh, lambda: token.run_sync_soon(stop.set)))
            await stop.wait()

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(trio.run, live)
        future.add_done_callback(lambda _: opened.put(None))
        found = opened.get()
        if found is None:
            future.result()
            raise RuntimeError("a mesh that ended before it served")
        mesh, stop = found
        try:
            yield mesh
        finally:
            stop()
            future.result()


PlanOf = Callable[..., MeshPlan]


@pytest.fixture(scope="session")
def plan_of(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> PlanOf:
    """A function that plans a mesh in f32, of the real model, in a directory of its own."""

    def plan(**options: Any) -> MeshPlan:
        asked: dict[str, Any] = {
            "model": str(smollm2_gguf),
            "workers": 3,
            "claims": (),
            "directory": tmp_path_factory.mktemp("up"),
            "context": CONTEXT,
            "slots": 4,
            "device": "cpu",
            "dtype": DType.F32,
            "prompt": None,
            "as_json": True,
        }
        found = UpOptions(**asked | options)
        return plan_mesh(found, LocalModel(MODEL, Path(found.model)))

    return plan


RunMesh = Callable[[MeshPlan], AbstractContextManager[Mesh]]


@pytest.fixture(scope="session")
def run_mesh() -> RunMesh:
    """A function that runs a mesh for as long as a context lasts."""
    return mesh_in_thread


@pytest.fixture(scope="module")
def three_processes(plan_of: PlanOf) -> Iterator[tuple[MeshPlan, Mesh]]:
    """A musivum and three workers on loopback, each with a third of the real model."""
    plan = plan_of()
    with mesh_in_thread(plan) as mesh:
        yield plan, mesh


@pytest.fixture
async def mesh(three_processes: tuple[MeshPlan, Mesh]) -> AsyncIterator[RealMesh]:
    """The shared mesh, and a client for this test."""
    plan, running = three_processes
    ranges = [(layers.start, layers.stop) for layers in running.ranges]
    async with client_host() as host:
        yield RealMesh(host, running.musivum, plan, ranges)


Command = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start_command(tmp_path: Path) -> Iterator[Command]:
    """A function that starts `tessella` with these arguments, in a home of its own."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            python_program("tessella.cli.main", *args),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "TESSELLA_HOME": str(tmp_path / "home")},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
