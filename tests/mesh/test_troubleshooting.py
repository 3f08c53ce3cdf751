"""What a node that is refused leaves behind: one line on stderr, and an exit status."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from tessella.engine.toy import toy_shape, write_toy
from tessella.keys import load_or_create_key
from tests.mesh.restarts.program import Program

pytestmark = [pytest.mark.mesh, pytest.mark.timeout(120)]

HOST = "127.0.0.1"
FLOOR_MB = 300


@dataclass
class PrivateMesh:
    """A musivum that lets in one node, whose key is here."""

    directory: Path
    url: str

    def refused(self, key: str, *args: str) -> tuple[int, str]:
        """The exit status and the last line of a node with this key."""
        home = self.directory / "worker"
        home.mkdir(exist_ok=True)
        (home / "worker_config.toml").write_text('[worker]\ndevice = "cpu"\n')
        argv = ["--config", str(home / "worker_config.toml"), "--musivum", self.url, "--no-api"]
        argv += ["--key", str(self.directory / key), "--listen", f"/ip4/{HOST}/tcp/0"]
        argv += ["--model", "toy", "--weights", str(self.directory / "toy"), *args]
        worker = Program("tessella.cli.worker", tuple(argv), home)
        worker.start()
        try:
            status = trio.run(worker.ended)
        finally:
            worker.end()
        assert "Traceback" not in worker.errors
        return status, worker.errors.splitlines()[-1]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateMesh]:
    directory = tmp_path_factory.mktemp("mesh")
    write_toy(directory / "toy", shape=toy_shape(layers=6))
    known = load_or_create_key(directory / "known.key").peer_id
    home = directory / "musivum"
    home.mkdir()
    (home / "musivum.toml").write_text(f'min_vram_mb = {FLOOR_MB}\nallow = ["{known}"]\n')
    args = ("serve", "--p2p", f"{HOST}:0", "--http", f"{HOST}:0", "--data", str(home))
    musivum = Program("musivum.cli", args, home)
    musivum.start()
    try:
        (url,) = trio.run(musivum.told, "ready")["http"]
        yield PrivateMesh(directory, url)
    finally:
        musivum.end()


def test_a_claim_below_the_floor_ends_the_command_with_the_claim_that_would_do(
    mesh: PrivateMesh,
) -> None:
    status, line = mesh.refused("known.key", "--claim-mb", "200")
    assert (status, line) == (
        1,
        "tessella-worker: claim_too_small: a claim of 200 MB holds no layer here: 300 MB would; "
        "vram_mb is the claim; a lower context_size or parallel_slots needs less",
    )


def test_a_private_mesh_ends_the_command_of_a_stranger_with_its_peer_id(mesh: PrivateMesh) -> None:
    status, line = mesh.refused("stranger.key", "--claim-mb", "1000")
    stranger = load_or_create_key(mesh.directory / "stranger.key").peer_id
    start = f"tessella-worker: worker_not_authorized: this mesh is private, and {stranger} is not"
    assert (status, line[: len(start)]) == (1, start)
