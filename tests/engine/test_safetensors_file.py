"""A safetensors file is read exactly, a slice at a time; a lying header is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from tessella.core.errors import BadWeights, InputError, UnsupportedModel
from tessella.engine import safetensors_file
from tessella.engine.safetensors_file import MAX_HEADER_BYTES, SafetensorsFile

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


def write(path: Path, header: object, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(shape: list[int], start: int, stop: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


@pytest.mark.parametrize("stored", FLOATS)
@pytest.mark.parametrize("wanted", FLOATS)
@pytest.mark.parametrize("slice_bytes", [4, 1024])
def test_tensors_are_read_in_slices_and_cast(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stored: torch.dtype,
    wanted: torch.dtype,
    slice_bytes: int,
) -> None:
    monkeypatch.setattr(safetensors_file, "SLICE_BYTES", slice_bytes)
    tensors = {
        "a": torch.randn(5, 7).to(stored),
        "b": torch.randn(3).to(stored),
        "empty": torch.zeros(0, 4, dtype=stored),
        "scalar": torch.tensor(1.5, dtype=stored),
    }
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    file = SafetensorsFile(tmp_path / "model.safetensors")
    assert {name: info.shape for name, info in file.tensors.items()} == {
        name: tuple(tensor.shape) for name, tensor in tensors.items()
    }
    for name, tensor in tensors.items():
        into = torch.full(tensor.shape, float("nan"), dtype=wanted)
        file.read(name, into)
        assert torch.equal(into, tensor.to(wanted))
    file.close()


def test_a_tensor_that_is_not_there_or_of_another_shape_is_named(tmp_path: Path) -> None:
    file = SafetensorsFile(write(tmp_path / "x.safetensors", {"a": entry([2], 0, 8)}, bytes(8)))
    with pytest.raises(BadWeights, match=r"x\.safetensors holds no tensor b"):
        file.read("b", torch.empty(2))
    with pytest.raises(BadWeights, match=r"a has shape \[2\], not \[2, 1\]"):
        file.read("a", torch.empty(2, 1))
    file.close()


def test_other_types_may_lie_in_a_file_and_are_refused_when_read(tmp_path: Path) -> None:
    header = {"ids": entry([1], 0, 8, "I64")}
    file = SafetensorsFile(write(tmp_path / "x.safetensors", header, bytes(8)))
    with pytest.raises(UnsupportedModel, match="ids is of type I64"):
        file.read("ids", torch.empty(1))
    file.close()


@pytest.mark.parametrize(
    ("header", "data", "named"),
    [
        (b"{", b"", "not valid JSON"),
        (b"\xff\xfe", b"", "not valid JSON"),
        (b"[" * 100_000, b"", "not valid JSON"),
        (b"[]", b"", "not a JSON object"),
        (b'{"a": 1, "a": 2}', b"", "the key 'a' comes twice"),
        ({"a": 3}, b"", "'a' is malformed"),
        ({"a": {"dtype": "F32", "shape": [2]}}, bytes(8), "'a' is malformed"),
        ({"a": entry([2], 0, 8) | {"data_offsets": [0, 4, 8]}}, bytes(8), "'a' is malformed"),
        ({"a": entry([2], 0, 8) | {"data_offsets": [0.0, 8.0]}}, bytes(8), "'a' is malformed"),
        ({"a": entry([-2], 0, -8)}, b"", "'a' has the shape"),
        ({"a": entry([1] * 9, 0, 4)}, bytes(4), "'a' has the shape"),
        ({"a": entry([3], 0, 8)}, bytes(8), "'a' has 8 bytes, not those of [3] in F32"),
        ({"a": entry([2**62, 2**62], 0, 8)}, bytes(8), "'a' has 8 bytes"),
        ({"a": entry([2], 4, 12)}, bytes(12), "'a' starts at byte 4, not 0"),
        ({"a": entry([2], -4, 4)}, bytes(12), "'a' starts at byte -4, not 0"),
        ({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, bytes(12), "'b' starts at byte 4, not 8"),
        ({"a": entry([2], 0, 8)}, bytes(7), "is truncated inside 'a'"),
        ({"a": entry([2], 0, 8)}, bytes(9), "has 1 bytes after its last tensor"),
    ],
)
def test_a_header_that_lies_is_refused_with_the_file_and_the_tensor(
    tmp_path: Path, header: object, data: bytes, named: str
) -> None:
    path = write(tmp_path / "x.safetensors", header, data)
    with pytest.raises(BadWeights) as caught:
        SafetensorsFile(path)
    assert named in str(caught.value)
    assert str(path) in str(caught.value)


def test_an_unknown_type_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "x.safetensors", {"a": entry([2], 0, 1, "F4")}, bytes(1))
    with pytest.raises(UnsupportedModel, match="'a' is of type 'F4'"):
        SafetensorsFile(path)


def test_the_length_of_a_header_is_checked_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes((MAX_HEADER_BYTES + 1).to_bytes(8, "little"))
    with pytest.raises(BadWeights, match=f"a header of {MAX_HEADER_BYTES + 1} bytes"):
        SafetensorsFile(path)
    path.write_bytes((1000).to_bytes(8, "little"))
    with pytest.raises(BadWeights, match="truncated"):
        SafetensorsFile(path)
    path.write_bytes(b"1234567")
    with pytest.raises(BadWeights, match="truncated"):
        SafetensorsFile(path)


def test_the_number_of_tensors_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safetensors_file, "MAX_TENSORS", 3)
    header = {str(number): entry([0], 0, 0) for number in range(4)}
    with pytest.raises(BadWeights, match="4 tensors, at most 3"):
        SafetensorsFile(write(tmp_path / "x.safetensors", header))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_an_input_error_or_a_file_of_the_same_size(
    tmp_path: Path, data: st.DataObject
) -> None:
    header = {"a": entry([2], 0, 8), "b": entry([1, 2], 8, 16)}
    path = write(tmp_path / "x.safetensors", header, bytes(16))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.sampled_from([at, len(content)]))])
    try:
        file = SafetensorsFile(path)
    except InputError as exc:
        assert str(path) in str(exc)
    else:
        assert path.stat().st_size == len(content)
        file.close()
