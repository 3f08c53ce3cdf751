"""A node that is not let in: the status, and the one line on stderr that says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
import typer
from trio.testing import MockClock

from musivum.testing import QUIET, clock
from musivum.testing_http import answering, http_node
from p2p.testing import MemoryNetwork
from tessella.core.errors import TessellaError
from tessella.core.identity import Identity
from tessella.ending import run_program
from tessella.worker.config import WorkerConfig
from tessella.worker.ground import Ground
from tessella.worker.node import run_node
from tests.worker.conftest import MODEL, InlineCompute, wall_clock
from tests.worker.split import Split, split, write_split

NODE, STRANGER = Identity(b"n" * 32), Identity(b"s" * 32)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_split(tmp_path_factory.mktemp("split"))


def printed(error: TessellaError, capsys: pytest.CaptureFixture[str]) -> tuple[Any, str]:
    """The exit status and the one line of a `tessella-worker` that ends with this error."""
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def node() -> None:
        raise error

    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        run_program(app, "tessella-worker", [])
    (line,) = capsys.readouterr().err.splitlines()
    return ended.value.code, line


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def refused(
    mesh: Split, clock: Callable[[], float] = wall_clock, claim_mb: int = 64
) -> TessellaError:
    """What a node ends with that musivum does not take."""
    config = WorkerConfig(
        musivum=(mesh.musivum.address,),
        model=MODEL,
        weights=mesh.weights,
        claim_mb=claim_mb,
        device="cpu",
        context=256,
        slots=2,
        allow_private=True,
    )
    async with mesh.net.host(NODE) as host:
        ground = Ground(NODE, host, InlineCompute(), clock)
        with pytest.raises(TessellaError) as caught:
            await run_node(config, ground, trio.Event(), lambda _: None)
    assert mesh.books.roster.find(NODE.peer_id) is None
    return caught.value


async def test_a_claim_that_holds_no_layer_names_one_that_does(
    weights: Path, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    async with split(weights) as mesh:
        status, line = printed(await refused(mesh, claim_mb=1), capsys)
        start = "tessella-worker: claim_too_small: a claim of 1 MB holds no layer here: "
        assert (status, line[: len(start)]) == (1, start)
        enough = int(line.removeprefix(start).partition(" MB would; vram_mb is the claim")[0])
        status, line = printed(await refused(mesh, claim_mb=enough - 1), capsys)
        assert (status, f"{enough - 1} MB holds no layer here: {enough} MB" in line) == (1, True)
        node = await mesh.join(enough, slots=2)
        assert mesh.listed(node).startswith("Healthy ")


async def test_the_floor_of_a_mesh_is_named(
    weights: Path, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    async with split(weights, min_vram_mb=4096) as mesh:
        status, line = printed(await refused(mesh, claim_mb=4095), capsys)
    assert status == 1
    assert "a claim of 4095 MB holds no layer here: 4096 MB would" in line


async def test_a_private_mesh_names_the_peer_that_it_does_not_know(
    weights: Path, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    async with split(weights, allow=(STRANGER.peer_id,)) as mesh:
        status, line = printed(await refused(mesh), capsys)
    assert (status, line) == (
        1,
        "tessella-worker: worker_not_authorized: this mesh is private, and "
        f"{NODE.peer_id} is not on its list; nothing is wrong with this node: ask who runs the "
        "mesh to let it in",
    )


@pytest.mark.parametrize(("off", "word"), [(3600.0, "ahead of"), (-3600.0, "behind")])
async def test_a_clock_that_is_wrong_is_said_to_be(
    weights: Path,
    autojump_clock: MockClock,
    capsys: pytest.CaptureFixture[str],
    off: float,
    word: str,
) -> None:
    async with split(weights) as mesh:
        status, line = printed(await refused(mesh, lambda: wall_clock() + off), capsys)
    assert (status, line) == (
        1,
        f"tessella-worker: clock_skew: the call was made 3600 s {word} this clock: set yours; that "
        "is the clock of this machine",
    )


class Forger(Identity):
    """Signs with another key than its own, as who copied half of a configuration."""

    def sign(self, purpose: bytes, payload: bytes) -> bytes:
        return STRANGER.sign(purpose, payload)


async def test_a_signature_of_another_key_is_no_signature(
    weights: Path, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    async with split(weights) as mesh, mesh.net.host(NODE) as host:
        config = WorkerConfig(
            musivum=(mesh.musivum.address,),
            model=MODEL,
            weights=mesh.weights,
            claim_mb=64,
            device="cpu",
        )
        ground = Ground(Forger(NODE.seed), host, InlineCompute(), wall_clock)
        with pytest.raises(TessellaError) as caught:
            await run_node(config, ground, trio.Event(), lambda _: None)
        status, line = printed(caught.value, capsys)
    assert status == 1
    assert line.startswith(f"tessella-worker: bad_signature: not signed by {NODE.peer_id} ")
    assert "its key is another than the one this node calls" in line


@pytest.mark.parametrize(
    ("settings", "changes", "off", "status", "code"),
    [
        ({}, {"vram_mb": 0}, 0.0, 409, "claim_too_small"),
        ({"allow": (STRANGER.peer_id,)}, {}, 0.0, 403, "worker_not_authorized"),
        ({}, {}, 3600.0, 401, "clock_skew"),
    ],
)
async def test_over_http_the_same_refusals_have_their_status(
    autojump_clock: MockClock,
    settings: dict[str, Any],
    changes: dict[str, Any],
    off: float,
    status: int,
    code: str,
) -> None:
    config = replace(QUIET, **{"min_vram_mb": 0, "dial_back": False, **settings})
    net = MemoryNetwork()
    async with answering(net, b"m" * 32, config) as door, http_node(net, b"n" * 32, door) as node:
        answer = await replace(node, clock=lambda: clock() + off).register(**changes)
        assert told(answer) == (status, code)
        if status == 401:
            assert int(answer.headers["Tessella-Time"]) == int(clock()), "what time it is here"


async def test_over_http_a_body_that_was_changed_on_the_way_is_not_signed(
    autojump_clock: MockClock,
) -> None:
    net, config = MemoryNetwork(), replace(QUIET, min_vram_mb=0, dial_back=False)
    async with answering(net, b"m" * 32, config) as door, http_node(net, b"n" * 32, door) as node:
        body = json.dumps(node.registration()).encode()
        headers = node.sign(node.asked("/register", body))
        answer = await node.send("/register", body.replace(b"{", b"{ ", 1), headers)
        assert told(answer) == (401, "bad_signature")
        assert (await node.send("/register", body, headers)).status_code == 200
