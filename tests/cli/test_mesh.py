"""The musivum of `tessella up` is of this machine alone, whatever is set for another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessella.cli.mesh import musivum_program


def test_its_musivum_listens_on_loopback_alone_and_heeds_no_operator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MUSIVUM_DATABASE_URL", "postgresql://hub/mesh")
    monkeypatch.setenv("TESSELLA_HOME", "/h")
    program = musivum_program(tmp_path)
    assert {"--p2p=127.0.0.1:0", "--http=127.0.0.1:0", f"--data={tmp_path}"} <= set(program.argv)
    assert not any(key.startswith("MUSIVUM_") for key in program.env)
    assert program.env["TESSELLA_HOME"] == "/h"
