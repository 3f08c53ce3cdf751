"""`musivum manifest`: which weights a model is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from musivum.cli.asking import Document, ask, door_of, many, one, operator_door_of, order
from musivum.cli.options import ConfigOption, DataOption, JsonOption, TokenFileOption, UrlOption
from musivum.cli.showing import show_facts, show_json, show_records
from tessella.core.errors import BadManifest
from tessella.core.manifest import MAX_MANIFEST_BYTES, Manifest, manifest_document, read_manifest

MANIFEST = "/weights/manifest"
# In what `show` prints, and no part of a manifest.
_PUBLISHED = "published"
_FILES = {"name": "file", "bytes": "bytes", "sha256": "sha256"}

manifest_app = typer.Typer(
    no_args_is_help=True, help="Publish which weights a model is, or see it."
)


@manifest_app.command()
def publish(
    file: Annotated[Path, typer.Argument(help="A manifest as `show --json` prints it.")],
    url: UrlOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bind a model to the weights of a manifest: nodes with others are refused from then on."""
    body = manifest_document(read_file(file))
    answer = one(order(operator_door_of(url, data, config, token_file), MANIFEST, body))
    if as_json:
        show_json(answer)
    else:
        show_facts({"model": answer.get("model_id"), "contract": answer.get("contract")})


def read_file(path: Path) -> Manifest:
    """The manifest in a file. Raises BadManifest that names the file and the field."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as exc:
        raise BadManifest(f"cannot read {path}: {exc.strerror}") from exc
    if len(data) > MAX_MANIFEST_BYTES:
        raise BadManifest(f"{path} is longer than {MAX_MANIFEST_BYTES} bytes")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise BadManifest(f"{path} is not JSON") from None
    if isinstance(found, dict):
        found.pop(_PUBLISHED, None)
    try:
        return read_manifest(found)
    except BadManifest as exc:
        raise BadManifest(f"{path}: {exc}") from None


@manifest_app.command()
def show(
    model: Annotated[str, typer.Argument(help="The name of the model.")],
    url: UrlOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """What a node has to own to serve a model."""
    document = one(ask(door_of(url, data, config), MANIFEST, {"model_id": model}))
    if as_json:
        show_json(document)
        return
    show_facts(_facts(document))
    files = many(document.get("files") or [])
    if files:
        show_records("files", _FILES, files)


def _facts(document: Document) -> Document:
    stands = "published" if document.get(_PUBLISHED) else "what most nodes hold"
    return {
        "model": document.get("model_id"),
        "contract": document.get("contract"),
        "stands": stands,
        **one(document.get("shape")),
    }
