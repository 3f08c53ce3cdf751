"""What `tessella up` starts is of this machine alone, whatever is set for other programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessella.catalogue import LocalModel
from tessella.cli.mesh import MeshPlan, musivum_program, worker_program
from tessella.core.addresses import PeerAddress
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.shapes import DType


def test_its_musivum_listens_on_loopback_alone_and_heeds_no_operator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MUSIVUM_DATABASE_URL", "postgresql://hub/mesh")
    monkeypatch.setenv("TESSELLA_HOME", "/h")
    program = musivum_program(tmp_path)
    assert {"--p2p=127.0.0.1:0", "--http=127.0.0.1:0", f"--data={tmp_path}"} <= set(program.argv)
    assert not any(key.startswith("MUSIVUM_") for key in program.env)
    assert program.env["TESSELLA_HOME"] == "/h"


def test_its_nodes_are_of_its_mesh_alone_and_answer_no_http(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("TESSELLA_VRAM_MB", "TESSELLA_ANYTHING", "ORCHESTRATOR_URL", "HF_ENDPOINT"):
        monkeypatch.setenv(name, "1")
    for name in ("TESSELLA_HOME", "HF_TOKEN"):
        monkeypatch.setenv(name, "/h")
    plan = MeshPlan(
        model=LocalModel(ModelId("toy"), tmp_path),
        claims=(64,),
        directory=tmp_path,
        context=64,
        slots=1,
        device="cpu",
        dtype=DType.F32,
    )
    musivum = PeerAddress(Identity(b"m" * 32).peer_id, ("/ip4/127.0.0.1/tcp/1",))
    program = worker_program(plan, 2, 64, musivum)
    assert {"--no-api", "--config=/dev/null"} <= set(program.argv)
    first = worker_program(plan, 1, 64, musivum)
    assert {"--api=127.0.0.1:0", "--config=/dev/null"} <= set(first.argv)
    assert not {"TESSELLA_VRAM_MB", "TESSELLA_ANYTHING", "ORCHESTRATOR_URL"} & set(program.env)
    assert "HF_ENDPOINT" not in program.env
    assert (program.env["TESSELLA_HOME"], program.env["HF_TOKEN"]) == ("/h", "/h")
