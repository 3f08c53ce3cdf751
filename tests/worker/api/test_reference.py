"""The reference names every route that there is, and none that is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio

from p2p.testing import MemoryNetwork
from tessella.core.errors import TessellaError
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.engine.compute import ComputeThread
from tessella.worker.assignment import Assignment
from tessella.worker.complete import Clients
from tessella.worker.config import WorkerConfig
from tessella.worker.counters import Counters
from tessella.worker.directory import Directory
from tessella.worker.door import Door, NodeRooms
from tessella.worker.ground import Ground
from tessella.worker.hop_streams import HopStreams
from tessella.worker.http_hops.bodies import HopBodies
from tessella.worker.orders import Orders
from tessella.worker.pausing import Pausing
from tessella.worker.serving import Serving
from tessella.worker.state import NodeState
from tessella.worker.tokens import TokenDesk
from tessella.worker.trust import Neighbourhood

REFERENCE = (Path(__file__).parents[3] / "docs" / "node-api.md").read_text()


def told() -> set[tuple[str, str]]:
    """Methods and paths in the first cells of its tables."""
    cells = (line.split("|")[1] for line in REFERENCE.splitlines() if line.startswith("|"))
    found = (route for cell in cells for route in re.findall(r"`(GET|POST) (/[^` ]*)`", cell))
    return {(method, path) for method, path in found}


async def test_every_route_is_in_the_reference(tmp_path: Path) -> None:
    """The document of a node that has loaded nothing is that of any node."""
    identity = Identity(b"n" * 32)
    config = WorkerConfig(
        model=ModelId("toy"),
        weights=tmp_path,
        claim_mb=1,
        kademlia=True,
        layers=LayerRange(0, 1),
    )
    async with MemoryNetwork().host(identity) as host, trio.open_nursery() as nursery:
        ground = Ground(identity, host, ComputeThread())
        state, counters = NodeState(0.0), Counters()
        pausing = Pausing(Assignment(1, None), state, trio.Event())
        directory = Directory(host, None, config.model, None)  # type: ignore[arg-type]
        around = Neighbourhood(directory, counters, 1.0, lambda _peer, _error: None)
        serving = Serving(state)
        rooms = NodeRooms(
            clients=Clients(around, serving),
            desk=TokenDesk(identity),
            hops=HopStreams(serving).serve,
            status=dict,
            orders=Orders([], lambda _: None, ground.clock),
            pausing=pausing,
            state=state,
            counters=counters,
            bodies=HopBodies(1),
        )
        document = Door(config, ground, rooms, nursery).app.openapi()
    served = {
        (method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
        if method != "head"
    }
    assert served == told()


@pytest.mark.parametrize("row", re.findall(r"^\| (\d{3}) \| (.*?) \|", REFERENCE, re.MULTILINE))
def test_every_code_is_one_of_the_tree_under_its_status(row: tuple[str, str]) -> None:
    status, names = row
    known = {kind.code: kind.status for kind in tree(TessellaError)}
    for code in re.findall(r"`(\w+)`", names):
        assert known[code] == int(status)


def tree(root: type[TessellaError]) -> list[type[TessellaError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in tree(child))]
