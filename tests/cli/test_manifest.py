"""A model on this machine as a manifest that a musivum takes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from typer.testing import CliRunner

from tessella.cli.worker import app
from tessella.core.errors import BadConfig
from tessella.core.manifest import decode_manifest
from tessella.core.shapes import DType
from tessella.engine.toy import toy_shape, write_toy


def test_it_names_shape_and_every_file_with_its_digest(tmp_path: Path) -> None:
    shape = toy_shape(layers=3)
    write_toy(tmp_path / "toy", shape=shape, files=2, dtype=DType.F32)
    (tmp_path / "toy" / ".cache").write_text("not of the model")
    ran = CliRunner().invoke(app, ["manifest", "--weights", str(tmp_path / "toy")])
    assert ran.exit_code == 0, ran.output
    found = decode_manifest(ran.stdout.strip().encode())
    assert found.shape == shape
    assert found.model == json.loads(ran.stdout)["model_id"]
    expected = {
        path.name: (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in (tmp_path / "toy").iterdir()
        if not path.name.startswith(".")
    }
    assert {file.name: (file.size, file.sha256) for file in found.files} == expected
    assert len(expected) >= 3


def test_it_needs_a_model() -> None:
    ran = CliRunner().invoke(app, ["manifest"])
    assert isinstance(ran.exception, BadConfig)
    assert "--model" in str(ran.exception)
