"""A mesh on this machine: a musivum and its nodes, each a process, on real libp2p over loopback."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tessella.catalogue import LocalModel
from tessella.cli.processes import Children, Program, Tell, open_children, python_program
from tessella.cli.render import Document
from tessella.core.addresses import PeerAddress, parse_peer
from tessella.core.errors import BadConfig, Busy, RemoteFailure
from tessella.core.layers import LayerRange
from tessella.core.shapes import DType
from tessella.worker.settings import KEYS

LOOPBACK = "127.0.0.1"
# Tiny models are split on one machine too; musivum's own floor is for strangers.
MIN_VRAM_MB = 0
# Importing torch and libp2p on a busy machine, then joining.
START_SILENCE = 120.0
# Between two tensors of a shard.
LOAD_SILENCE = 300.0
THREADS_VARIABLE = "OMP_NUM_THREADS"
MUSIVUM = "MUSIVUM_"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshPlan:
    """What to start."""

    model: LocalModel
    claims: Sequence[int]
    """Claims of the nodes in MB, in the order in which they join."""
    directory: Path
    """Keys and logs."""
    context: int
    slots: int
    device: str
    dtype: DType

    @property
    def threads(self) -> int:
        """Threads a node computes with, so that all of them together keep the cores busy."""
        return max(1, _cores() // len(self.claims))


def _cores() -> int:
    """Cores this process may use; macOS only tells how many there are."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Mesh:
    """A mesh that serves."""

    musivum: PeerAddress
    ranges: tuple[LayerRange, ...]
    """What the nodes were assigned, in the order in which they joined."""
    api_url: str
    """Where OpenAI clients reach the first of them."""


@asynccontextmanager
async def open_mesh(plan: MeshPlan, tell: Tell) -> AsyncIterator[Mesh]:
    """Start a mesh, wait until it serves, and end it with the context.

    Nodes start and load side by side, and join one after another, so that ranges follow the
    order of the claims. Raises ProcessDied that names the one that ended.
    """
    with state_directory(plan.directory) as logs:
        async with open_children(logs, tell) as children:
            musivum = await _start_musivum(children, plan)
            workers = [
                await children.start(worker_program(plan, number, claim, musivum))
                for number, claim in enumerate(plan.claims, 1)
            ]
            ranges = []
            for worker in workers:
                await worker.say_go()
                ranges.append(_range_in(await worker.wait_for("assigned", START_SILENCE)))
            urls = [
                (await worker.wait_for("ready", LOAD_SILENCE)).get("api_url") for worker in workers
            ]
            yield Mesh(musivum, tuple(ranges), f"{urls[0]}/v1")


@contextmanager
def state_directory(directory: Path) -> Iterator[Path]:
    """Make the directory, and keep others out while it is used; gives the one for the logs.

    Raises BadConfig if it cannot be written, Busy if it is in use.
    """
    logs = directory / "logs"
    try:
        logs.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("ab")
    except OSError as exc:
        raise BadConfig(f"cannot write the directory {directory}: {exc.strerror}") from exc
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"{directory} is in use by another `tessella up`: choose --dir") from None
        yield logs


async def _start_musivum(children: Children, plan: MeshPlan) -> PeerAddress:
    child = await children.start(musivum_program(plan.directory / "musivum"))
    ready = await child.wait_for("ready", START_SILENCE)
    match ready.get("addrs"):
        case [str(addr), *_]:
            return parse_peer(addr)
    raise RemoteFailure("protocol_error", "musivum says no address of its own", retry=False)


def musivum_program(data: Path) -> Program:
    """A musivum of this machine alone, that keeps what it has to in a directory."""
    argv = python_program(
        "musivum.cli",
        "serve",
        f"--p2p={LOOPBACK}:0",
        f"--http={LOOPBACK}:0",
        f"--data={data}",
        f"--min-vram-mb={MIN_VRAM_MB}",
        "--json",
        "--until-stdin-closes",
    )
    # What an operator set for another musivum, such as its database, is not for this one.
    env = {key: value for key, value in os.environ.items() if not key.startswith(MUSIVUM)}
    return Program(name="musivum", argv=argv, env=env, last=True)


def worker_program(plan: MeshPlan, number: int, claim: int, musivum: PeerAddress) -> Program:
    """A node of that mesh and of no other, whatever its operator has set for one of his own."""
    argv = python_program(
        "tessella.cli.worker",
        f"--config={os.devnull}",
        f"--musivum={musivum.full()[0]}",
        f"--model={plan.model.name}",
        f"--weights={plan.model.path.resolve()}",
        f"--claim-mb={claim}",
        f"--listen=/ip4/{LOOPBACK}/tcp/0",
        # The first holds layer 0: its API needs no other node to begin with.
        f"--api={LOOPBACK}:0" if number == 1 else "--no-api",
        f"--key={plan.directory / f'worker-{number}.key'}",
        f"--device={plan.device}",
        f"--dtype={plan.dtype.value}",
        f"--context={plan.context}",
        f"--slots={plan.slots}",
        "--json",
        "--until-stdin-closes",
        "--join-after-stdin",
    )
    inherited = {name: value for name, value in os.environ.items() if not _sets_a_node(name)}
    env = {THREADS_VARIABLE: str(plan.threads), **inherited}
    return Program(name=f"worker-{number}", argv=argv, env=env)


def _sets_a_node(variable: str) -> bool:
    is_ours = variable.startswith(KEYS.prefix) and variable not in KEYS.others
    return is_ours or variable in KEYS.by_variable


def _range_in(event: Document) -> LayerRange:
    match event.get("layer_range"):
        case [int(start), int(stop)]:
            return LayerRange(start, stop)
    raise RemoteFailure("protocol_error", "a worker says no range of its own", retry=False)
