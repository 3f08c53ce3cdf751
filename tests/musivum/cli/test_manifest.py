"""Manifests: shown, kept in a file, and published from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from musivum.testing import SMALL
from tessella.core.ids import ModelId
from tessella.core.manifest import MAX_MANIFEST_BYTES, Manifest, WeightFile, manifest_document

MANIFEST = Manifest(
    model=ModelId("org/small"),
    shape=SMALL,
    files=(WeightFile("model.safetensors", 7, "ab" * 32),),
)
SHOWN = {**manifest_document(MANIFEST), "published": True}


def test_a_manifest_is_shown_with_its_shape_and_files(command: Any, fake: Any) -> None:
    fake.say("GET", "/weights/manifest", SHOWN)
    lines = [line.split() for line in command("manifest", "show", "org/small").out.splitlines()]
    assert dict(fake.last.url.params) == {"model_id": "org/small"}
    assert ["contract", MANIFEST.contract] in lines
    assert ["stands", "published"] in lines
    assert ["layers", "12"] in lines
    assert ["model.safetensors", "7", "ab" * 32] in lines


def test_what_show_prints_can_be_published(
    command: Any, fake: Any, token_file: Path, tmp_path: Path
) -> None:
    fake.say("GET", "/weights/manifest", SHOWN)
    file = tmp_path / "m.json"
    file.write_text(command("manifest", "show", "org/small", "--json").out)
    published = {"model_id": "org/small", "contract": MANIFEST.contract}
    fake.say("POST", "/weights/manifest", published)
    lines = [line.split() for line in command("manifest", "publish", str(file)).out.splitlines()]
    assert lines == [["model", "org/small"], ["contract", MANIFEST.contract]]
    assert json.loads(fake.last.content) == manifest_document(MANIFEST)
    assert json.loads(command("manifest", "publish", str(file), "--json").out) == published


def test_a_contract_may_be_left_out_of_the_file(
    command: Any, fake: Any, token_file: Path, tmp_path: Path
) -> None:
    file = tmp_path / "m.json"
    document = manifest_document(MANIFEST)
    del document["contract"]
    file.write_text(json.dumps(document))
    fake.say("POST", "/weights/manifest", {})
    command("manifest", "publish", str(file))
    assert json.loads(fake.last.content)["contract"] == MANIFEST.contract


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "cannot read "),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "a manifest that is not an object"),
        (json.dumps({**SHOWN, "contract": "0" * 64}), "manifest.contract"),
        (json.dumps({**SHOWN, "color": 1}), "no field 'color'"),
        (" " * (MAX_MANIFEST_BYTES + 1), "is longer than"),
    ],
)
def test_a_file_that_is_no_manifest_is_named_before_anything_is_sent(
    content: str | None, named: str, command: Any, fake: Any, tmp_path: Path
) -> None:
    file = tmp_path / "m.json"
    if content is not None:
        file.write_text(content)
    ended = command("manifest", "publish", str(file))
    assert (ended.status, ended.out, fake.asked) == (1, "", [])
    assert ended.err.startswith("musivum: bad_manifest: ")
    assert named in ended.err
    assert str(file) in ended.err
    assert ended.err.count("\n") == 1
