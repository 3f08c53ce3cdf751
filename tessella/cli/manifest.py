"""`tessella-worker manifest`: what a model on this machine is, for a musivum to publish."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tessella.catalogue import require_model
from tessella.cli.planning import read_checkpoint
from tessella.core.errors import BadConfig, BadWeights
from tessella.core.manifest import Manifest, WeightFile, encode_manifest


def manifest(
    model: Annotated[str | None, typer.Option(help="A model on this machine.")] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="PATH", help="GGUF file or HuggingFace directory.")
    ] = None,
) -> None:
    """Print the manifest of a model: its shape, and size and SHA-256 of each of its files.

    `musivum manifest publish FILE` binds a mesh to it.
    """
    if not (weights or model):
        raise BadConfig("the manifest of what? --model NAME, or --weights PATH")
    found = require_model(weights or model or "")
    shape = read_checkpoint(found.path, None, None).shape
    files = tuple(_files(found.path))
    print(encode_manifest(Manifest(model=found.name, shape=shape, files=files)).decode())


def _files(path: Path) -> Iterator[WeightFile]:
    if path.is_file():
        yield _file(path, path.parent)
        return
    for each in sorted(path.rglob("*")):
        inside = each.relative_to(path)
        if each.is_file() and not any(part.startswith(".") for part in inside.parts):
            yield _file(each, path)


def _file(path: Path, below: Path) -> WeightFile:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
    except OSError as exc:
        raise BadWeights(f"cannot read {path}: {exc.strerror}") from exc
    return WeightFile(path.relative_to(below).as_posix(), size, digest)
