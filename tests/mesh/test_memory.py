"""What a worker takes beside its tensors: read from the kernel, for real processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tessella.core.costs import kv_bytes
from tessella.core.shapes import DType
from tessella.engine.toy import toy_shape, write_toy
from tessella.engine.weights import open_checkpoint

if TYPE_CHECKING:
    from tessella.cli.mesh import Mesh, MeshPlan
    from tests.mesh.conftest import PlanOf, RealMesh, RunMesh, Said

pytestmark = [
    pytest.mark.mesh,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

MB = 1_000_000
# Beside what it holds: a tokenizer, connections, a heap that is never quite full.
ALLOWED_FACTOR, ALLOWED_BYTES = 1.10, 40 * MB


@dataclass(frozen=True)
class Taken:
    """Memory of one process, in bytes."""

    unique: int
    """Pages that it shares with nobody, at this moment."""
    peak: int
    """The most that it ever had, shared ones included."""


def taken(pid: int) -> Taken:
    rollup = _table(Path(f"/proc/{pid}/smaps_rollup"))
    status = _table(Path(f"/proc/{pid}/status"))
    return Taken(rollup["Private_Clean"] + rollup["Private_Dirty"], status["VmHWM"])


def _table(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0][:-1]: int(words[1]) * 1024 for words in lines if words[-1] == "kB"}


def worker_pid(plan: MeshPlan, number: int) -> int:
    """The worker with this number, by the key that its command line names."""
    wanted = f"--key={plan.directory / f'worker-{number}.key'}".encode()
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (directory / "cmdline").read_bytes().split(b"\0"):
                return int(directory.name)
        except OSError:
            continue  # it ended meanwhile
    raise LookupError(f"no process has {wanted!r}")


@dataclass(frozen=True)
class Loaded:
    """A mesh whose workers are ready and were asked nothing yet."""

    plan: MeshPlan
    mesh: Mesh
    middle: int
    """The process that holds the middle third."""
    at_ready: Taken
    empty: Taken
    """A worker of a model whose tensors are next to nothing, at the same point of its life."""


@pytest.fixture(scope="module")
def loaded(
    plan_of: PlanOf, run_mesh: RunMesh, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Loaded]:
    toy = tmp_path_factory.mktemp("models") / "toy"
    write_toy(toy, shape=toy_shape())
    nothing = plan_of(model=str(toy), workers=1, context=64)
    with run_mesh(nothing):
        empty = taken(worker_pid(nothing, 1))
    plan = plan_of(context=2048)
    with run_mesh(plan) as mesh:
        middle = worker_pid(plan, 2)
        yield Loaded(plan, mesh, middle, taken(middle), empty)


@pytest.fixture
def three_processes(loaded: Loaded) -> tuple[MeshPlan, Mesh]:
    """What the fixture `mesh` connects to."""
    return loaded.plan, loaded.mesh


async def middle_status(mesh: RealMesh) -> dict[str, Any]:
    return (await mesh.statuses())[1]


def tell(what: str, found: int, allowed: float, parts: str) -> None:
    sys.stderr.write(f"{what}: {found / MB:.1f} MB of {allowed / MB:.1f} MB allowed ({parts})\n")


async def test_loading_peaks_at_no_more_than_one_tensor_above_what_is_held(
    mesh: RealMesh, loaded: Loaded
) -> None:
    tensors = [tensor["bytes"] for tensor in (await middle_status(mesh))["tensors"]]
    found = loaded.at_ready.peak - loaded.empty.peak
    allowed = ALLOWED_FACTOR * sum(tensors) + ALLOWED_BYTES + max(tensors)
    tell(
        "peak", found, allowed, f"tensors {sum(tensors) / MB:.1f}, largest {max(tensors) / MB:.1f}"
    )
    assert sum(tensors) < found <= allowed


async def test_a_middle_third_takes_little_beside_its_tensors_and_its_kv(
    mesh: RealMesh, loaded: Loaded
) -> None:
    seen: list[tuple[int, int]] = []

    def look(said: Said) -> None:
        if len(said.ids) == 60:
            positions = said.begun.prompt_tokens + len(said.ids)
            seen.append((positions, taken(loaded.middle).unique))

    # The first answer makes what every later one uses again.
    for _ in range(2):
        seen.clear()
        await mesh.ask("Tell me about the history of bread. " * 40, max_tokens=64, heard=look)
    ((positions, unique),) = seen
    status = await middle_status(mesh)
    with closing(open_checkpoint(loaded.plan.model.path)) as checkpoint:
        shape = checkpoint.shape
    start, stop = status["layer_range"]
    kv = kv_bytes(shape, stop - start, positions, DType.F32)
    weights = sum(tensor["bytes"] for tensor in status["tensors"])
    assert weights == status["weight_bytes"]
    found = unique - loaded.empty.unique
    allowed = ALLOWED_FACTOR * (weights + kv) + ALLOWED_BYTES
    parts = f"tensors {weights / MB:.1f}, KV {kv / MB:.1f}, empty {loaded.empty.unique / MB:.1f}"
    tell("steady", found, allowed, parts)
    assert weights < found <= allowed
