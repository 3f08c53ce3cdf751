"""js-libp2p, which shares no line with us, takes part in the swarm by what docs/wire.md says."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

import tessella
from p2p.dht import open_dht
from p2p.host import open_host
from tessella.core.identity import Identity
from tessella.core.layers import LayerRange

if TYPE_CHECKING:
    # Found there at run time as well, but under another name.
    from tests.interop.conftest import Swarm

pytestmark = [pytest.mark.mesh, pytest.mark.interop, pytest.mark.timeout(300)]

SOURCE = Path(__file__).with_name("js")
LISTS = ("package.json", "package-lock.json")
PEER = "peer.mjs"
OLDEST_NODE = 20
# A hundred packages; seconds, unless the registry is far away.
INSTALL_SECONDS = 150.0
PEER_SECONDS = 60.0
STEP_SECONDS = 10.0
# What npm calls it when it cannot get to the registry.
OFFLINE = {"EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ENETUNREACH", "ENOTFOUND", "ETIMEDOUT"}


@pytest.fixture
def js_peer(cache: Path) -> list[str]:
    """The command line of the foreign peer; installed once for each list of packages."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("the js-libp2p peer needs node and npm on PATH")
    said = subprocess.run(
        [node, "--version"], capture_output=True, check=True, timeout=STEP_SECONDS
    )
    version = said.stdout.decode().strip().lstrip("v")
    if int(version.partition(".")[0]) < OLDEST_NODE:
        pytest.skip(f"the js-libp2p peer needs Node {OLDEST_NODE}, found {version}")
    lists = b"".join((SOURCE / name).read_bytes() for name in LISTS)
    place = cache / "js-peer" / hashlib.sha256(lists).hexdigest()[:16]
    if not place.exists():
        install(npm, place)
    # Node looks for packages beside the file that it runs.
    shutil.copy(SOURCE / PEER, place / PEER)
    return [node, str(place / PEER)]


def install(npm: str, place: Path) -> None:
    """What the lists name, whole or not at all. Skips where there is no way to the registry."""
    place.parent.mkdir(parents=True, exist_ok=True)
    # No package's own scripts are run.
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"]
    with tempfile.TemporaryDirectory(prefix="draft-", dir=place.parent) as directory:
        draft = Path(directory) / "peer"
        shutil.copytree(SOURCE, draft)
        try:
            ended = subprocess.run(
                [npm, "ci", *options],
                cwd=draft,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=INSTALL_SECONDS,
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm's registry sent no js-libp2p within {INSTALL_SECONDS:g} s")
        found = OFFLINE.intersection(re.findall(r"\bE[A-Z_]+\b", ended.stderr))
        if ended.returncode and found:
            pytest.skip(f"js-libp2p is not installed, npm's registry is not reachable: {found}")
        assert ended.returncode == 0, ended.stderr
        draft.rename(place)


async def what_it_sees(command: list[str], *args: str) -> dict[str, Any]:
    """The one line of JSON that the foreign peer prints before it ends."""
    with trio.fail_after(PEER_SECONDS):
        ended = await trio.run_process(
            [*command, *args],
            stdin=subprocess.DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "")},
        )
    assert ended.returncode == 0, ended.stderr.decode(errors="replace")
    seen: dict[str, Any] = json.loads(ended.stdout)
    return seen


async def test_js_libp2p_finds_the_nodes_of_a_model_and_asks_them(
    js_peer: list[str], swarm: Swarm
) -> None:
    seen = await what_it_sees(js_peer, "find", swarm.bootstrap, swarm.model)
    assert seen["bootstrap"] == swarm.bootstrap_id
    assert (seen["security"], seen["muxer"]) == ("/noise", "/yamux/1.0.0")
    assert 0 <= seen["ping_ms"] < PEER_SECONDS * 1000
    (node,) = seen["nodes"]
    addrs = list(swarm.worker.addrs)
    assert (node["provider"], node["told"]) == (swarm.worker.peer_id, addrs)
    record = node["record"]
    assert (record["peer_id"], record["addrs"]) == (swarm.worker.peer_id, addrs)
    assert (record["model"], record["layers"]) == (swarm.model, list(swarm.layers))
    assert (record["total_layers"], record["status"]) == (swarm.total_layers, "Healthy")
    assert record["made_at"] <= time.time() < record["made_at"] + record["life"]
    status = node["status"]
    assert (status["role"], status["peer_id"]) == ("worker", swarm.worker.peer_id)
    assert (status["version"], status["layer_range"]) == (tessella.__version__, record["layers"])


async def test_js_libp2p_publishes_a_node_that_we_find(js_peer: list[str]) -> None:
    async with (
        open_host(Identity(os.urandom(32)), listen=["/ip4/127.0.0.1/tcp/0"]) as host,
        open_dht(host) as dht,
    ):
        seen = await what_it_sees(js_peer, "publish", host.address.full()[0], "elsewhere")
        assert seen["answered"] == [host.address.peer_id]
        (found,) = await dht.find_nodes("elsewhere")
    assert found.peer_id == seen["peer_id"]
    assert (found.model, found.contract, found.status) == ("elsewhere", "of the tensors", "Healthy")
    assert (found.layers, found.total_layers) == (LayerRange(2, 4), 4)
    assert found.addrs == ("/dns4/node.example/tcp/9080",)
    assert (found.device, found.dtype, found.queue_depth, found.step_ms) == ("cpu", "f16", 1, 2.5)
    assert found.sequence == round(found.made_at * 1000)
