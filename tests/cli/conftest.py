"""Commands as a shell sees them: what they print where, and the status they leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tessella.cli import main, worker

PROGRAMS = {"tessella": main.run, "tessella-worker": worker.run}


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    status: int | str | None
    out: str
    err: str


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, for models and keys."""
    directory = tmp_path / "home"
    monkeypatch.setenv("TESSELLA_HOME", str(directory))
    monkeypatch.setenv("HOME", str(directory))
    return directory


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], home: Path) -> Callable[..., Ended]:
    """A function that runs a command in this process."""

    def run(program: str, *args: str) -> Ended:
        with pytest.raises(SystemExit) as caught:
            PROGRAMS[program](args)
        out, err = capfd.readouterr()
        return Ended(caught.value.code, out, err)

    return run


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of six layers, each large enough for claims in MB to tell them apart."""
    from tessella.engine.toy import toy_shape, write_toy

    path = tmp_path_factory.mktemp("models") / "toy"
    shape = replace(toy_shape(layers=6, hidden=256), context=1024)
    write_toy(path, shape=shape)
    return path


@pytest.fixture
def broken_models(tmp_path: Path, toy: Path) -> Sequence[Path]:
    """A GGUF file and a checkpoint directory that each end too early."""
    gguf = tmp_path / "broken.gguf"
    gguf.write_bytes(b"GGUF\x03\x00\x00\x00\x01")
    directory = tmp_path / "torn"
    directory.mkdir()
    for file in toy.iterdir():
        (directory / file.name).write_bytes(file.read_bytes())
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4096])
    return gguf, directory
