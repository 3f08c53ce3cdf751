"""The manifest of a model: what a node must own to serve it under that name.

{"model_id": "org/name", "contract": "<sha-256>", "shape": {…},
 "files": [{"name": "model.safetensors", "bytes": 269060552, "sha256": "<hex>"}]}

The contract follows from the shape, and a manifest in which it does not is refused. `files` may be
empty: then the manifest says what the parameters are, and not what is in them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tessella.core.contracts import contract_of
from tessella.core.errors import BadFrame, BadManifest
from tessella.core.ids import ModelId
from tessella.core.shape_json import decode_shape, encode_shape
from tessella.core.shapes import ModelShape

MAX_MODEL_CHARS = 200
# The largest checkpoints have some hundred files.
MAX_FILES = 1024
MAX_FILE_NAME_CHARS = 255
# 1 EB: sums of sizes stay in 64 bits.
MAX_FILE_BYTES = 1 << 60
# Beside the token it fits a frame to musivum.
MAX_MANIFEST_BYTES = 192 * 1024
_HEX = set("0123456789abcdef")
_SHA256_CHARS = 64


@dataclass(frozen=True, slots=True)
class WeightFile:
    """One file of a model's weights."""

    name: str
    """Relative, with `/` between its parts, and never upwards."""
    size: int
    """Bytes."""
    sha256: str
    """Of its bytes, in hex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a model is. `contract` is `contract_of(shape)`."""

    model: ModelId
    shape: ModelShape
    files: tuple[WeightFile, ...] = ()

    @property
    def contract(self) -> str:
        """The parameter-contract hash: nodes that differ in it do not fit together."""
        return contract_of(self.shape)


def manifest_document(manifest: Manifest) -> dict[str, Any]:
    """A manifest as plain values for JSON."""
    return {
        "model_id": manifest.model,
        "contract": manifest.contract,
        "shape": json.loads(encode_shape(manifest.shape)),
        "files": [
            {"name": file.name, "bytes": file.size, "sha256": file.sha256}
            for file in manifest.files
        ],
    }


def encode_manifest(manifest: Manifest) -> bytes:
    """UTF-8 JSON."""
    return json.dumps(manifest_document(manifest), sort_keys=True).encode()


def decode_manifest(data: bytes) -> Manifest:
    """The inverse. Raises BadManifest that names the field."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise BadManifest(f"a manifest of {len(data)} bytes, over {MAX_MANIFEST_BYTES}")
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError):
        raise BadManifest("a manifest that is not JSON") from None
    return read_manifest(plain)


def read_manifest(plain: object) -> Manifest:
    """A manifest from plain values, as JSON gives them. Raises BadManifest that names the field."""
    if not isinstance(plain, dict):
        raise BadManifest("a manifest that is not an object")
    unknown = sorted(map(str, set(plain) - {"model_id", "contract", "shape", "files"}))
    if unknown:
        raise BadManifest(f"manifest: no field {unknown[0][:MAX_MODEL_CHARS]!r}")
    manifest = Manifest(
        model=ModelId(_model(plain.get("model_id"))),
        shape=_shape(plain.get("shape")),
        files=_files(plain.get("files", [])),
    )
    if plain.get("contract", manifest.contract) != manifest.contract:
        raise BadManifest(f"manifest.contract: its shape has the contract {manifest.contract}")
    return manifest


def _model(value: object) -> str:
    if isinstance(value, str) and 1 <= len(value) <= MAX_MODEL_CHARS and value.isprintable():
        return value
    raise BadManifest(f"manifest.model_id has to be 1 to {MAX_MODEL_CHARS} printable characters")


def _shape(value: object) -> ModelShape:
    try:
        return decode_shape(json.dumps(value).encode())
    except BadFrame as exc:
        raise BadManifest(f"manifest.shape: {exc}") from None


def _files(value: object) -> tuple[WeightFile, ...]:
    if not isinstance(value, list) or len(value) > MAX_FILES:
        raise BadManifest(f"manifest.files has to be a list of at most {MAX_FILES}")
    files = tuple(_file(number, each) for number, each in enumerate(value))
    names = {file.name for file in files}
    if len(names) < len(files):
        raise BadManifest("manifest.files: two files of one name")
    return files


def _file(number: int, value: object) -> WeightFile:
    where = f"manifest.files[{number}]"
    if not isinstance(value, dict) or set(value) != {"name", "bytes", "sha256"}:
        raise BadManifest(f"{where} has to have name, bytes and sha256")
    name, size, sha256 = value["name"], value["bytes"], value["sha256"]
    if not isinstance(name, str) or not _is_relative(name):
        raise BadManifest(f"{where}.name is not the name of a file in a model's directory")
    if type(size) is not int or not 0 <= size <= MAX_FILE_BYTES:
        raise BadManifest(f"{where}.bytes has to be 0 to {MAX_FILE_BYTES}")
    if not isinstance(sha256, str) or len(sha256) != _SHA256_CHARS or not set(sha256) <= _HEX:
        raise BadManifest(f"{where}.sha256 has to be {_SHA256_CHARS} lower-case hex digits")
    return WeightFile(name, size, sha256)


def _is_relative(name: str) -> bool:
    parts = name.split("/")
    return (
        1 <= len(name) <= MAX_FILE_NAME_CHARS
        and name.isprintable()
        and "\\" not in name
        and not {"", ".", ".."} & set(parts)
    )
