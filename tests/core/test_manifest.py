"""A manifest arrives as it was, and what is no manifest is refused by the name of its field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tessella.core.contracts import contract_of
from tessella.core.errors import BadManifest
from tessella.core.ids import ModelId
from tessella.core.manifest import (
    MAX_MANIFEST_BYTES,
    Manifest,
    WeightFile,
    decode_manifest,
    encode_manifest,
    manifest_document,
    read_manifest,
)
from tessella.core.shapes import ModelShape

SHAPE = ModelShape(
    family="qwen2",
    layers=4,
    hidden=8,
    intermediate=16,
    heads=2,
    kv_heads=1,
    head_dim=4,
    vocab=32,
    context=64,
)
FILE = WeightFile("sub/model-00001.safetensors", 12, "ab" * 32)
MANIFEST = Manifest(model=ModelId("org/m"), shape=SHAPE, files=(FILE,))


def document(**changes: Any) -> dict[str, Any]:
    return {**manifest_document(MANIFEST), **changes}


def test_a_manifest_arrives_as_it_was() -> None:
    assert decode_manifest(encode_manifest(MANIFEST)) == MANIFEST


def test_its_contract_is_that_of_its_shape_and_need_not_be_said() -> None:
    assert document()["contract"] == MANIFEST.contract == contract_of(SHAPE)
    plain = document()
    del plain["contract"], plain["files"]
    assert read_manifest(plain) == Manifest(model=ModelId("org/m"), shape=SHAPE)


def a_file(**changes: Any) -> list[dict[str, Any]]:
    return [{"name": "a", "bytes": 1, "sha256": "0" * 64, **changes}]


@pytest.mark.parametrize(
    ("plain", "named"),
    [
        ([], "not an object"),
        ({}, "model_id"),
        (document(extra=1), "'extra'"),
        (document(model_id=""), "model_id"),
        (document(model_id="a\nb"), "model_id"),
        (document(model_id="m" * 201), "model_id"),
        (document(contract="0" * 64), "contract"),
        (document(shape=None), "shape"),
        (document(shape={**document()["shape"], "layers": 0}), "shape"),
        (document(files={}), "files"),
        (document(files=a_file() * 1025), "files"),
        (document(files=a_file() + a_file()), "one name"),
        (document(files=[1]), r"files\[0\]"),
        (document(files=a_file(more=1)), r"files\[0\]"),
        (document(files=a_file(name="../x")), "name"),
        (document(files=a_file(name="/x")), "name"),
        (document(files=a_file(name="a\\b")), "name"),
        (document(files=a_file(name="")), "name"),
        (document(files=a_file(bytes=-1)), "bytes"),
        (document(files=a_file(bytes=True)), "bytes"),
        (document(files=a_file(bytes=1.0)), "bytes"),
        (document(files=a_file(sha256="0" * 63)), "sha256"),
        (document(files=a_file(sha256="A" * 64)), "sha256"),
    ],
)
def test_what_is_no_manifest_is_refused_by_the_name_of_its_field(plain: Any, named: str) -> None:
    with pytest.raises(BadManifest, match=named):
        read_manifest(plain)
    with pytest.raises(BadManifest, match=named):
        decode_manifest(json.dumps(plain).encode())


@pytest.mark.parametrize("data", [b"", b"\xff", b"[" * 100_000, b" " * (MAX_MANIFEST_BYTES + 1)])
def test_bytes_that_are_no_json_are_refused(data: bytes) -> None:
    with pytest.raises(BadManifest):
        decode_manifest(data)
