"""A GGUF header is read as it was written; a torn or lying one is one line, never a crash."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tessella.core.errors import BadWeights, InputError, UnsupportedModel
from tessella.engine.gguf_header import GgufHeader, SkippedArray, read_header
from tessella.engine.weights_file import WeightsFile

TOKENS = ["a", "汉", ""]


def write(path: Path) -> Path:
    writer = GGUFWriter(path, "llama")
    writer.add_uint32("number", 7)
    writer.add_float32("half", 0.5)
    writer.add_bool("yes", True)
    writer.add_int64("below", -(2**40))
    writer.add_string("text", "é")
    writer.add_array("tokens", TOKENS)
    writer.add_array("types", [1, 2, 3])
    writer.add_tensor("first", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add_tensor("second", np.ones(5, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def read(path: Path, *, keep: bool = True) -> GgufHeader:
    file = WeightsFile(path)
    try:
        return read_header(file, keep=lambda _: keep)
    finally:
        file.close()


def test_pairs_and_tensors_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf")
    header = read(path)
    assert header.metadata == {
        "general.architecture": "llama",
        "number": 7,
        "half": 0.5,
        "yes": True,
        "below": -(2**40),
        "text": "é",
        "tokens": TOKENS,
        "types": [1, 2, 3],
    }
    first, second = header.tensors.values()
    assert (first.name, first.shape, first.stored.name, first.size) == ("first", (3, 4), "F32", 48)
    assert (second.shape, second.size, second.rows) == ((5,), 10, 1)
    data = path.read_bytes()
    assert data[first.offset : first.offset + 48] == np.arange(12, dtype=np.float32).tobytes()
    assert data[second.offset : second.offset + 10] == np.ones(5, dtype=np.float16).tobytes()


def test_arrays_may_be_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf")
    header = read(path, keep=False)
    assert header.metadata["tokens"] == SkippedArray(3)
    assert header.metadata["types"] == SkippedArray(3)
    assert header.tensors == read(path).tensors


@pytest.mark.parametrize("keep", [True, False])
def test_a_file_cut_anywhere_is_said_to_be_truncated(tmp_path: Path, keep: bool) -> None:
    path = write(tmp_path / "x.gguf")
    content = path.read_bytes()
    # The last tensor is followed by padding that a reader can do without.
    for length in range(len(content) - 22):
        path.write_bytes(content[:length])
        with pytest.raises(BadWeights) as caught:
            read(path, keep=keep)
        assert str(path) in str(caught.value)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_an_input_error_or_harmless(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "x.gguf"
    if not path.exists():
        write(path)
        (tmp_path / "whole").write_bytes(path.read_bytes())
    content = bytearray((tmp_path / "whole").read_bytes())
    at = data.draw(st.integers(0, len(content) - 8))
    content[at : at + 8] = data.draw(st.binary(min_size=8, max_size=8))
    path.write_bytes(content)
    try:
        header = read(path)
    except InputError as exc:
        assert str(path) in str(exc)
    else:
        ends = (tensor.offset + tensor.size for tensor in header.tensors.values())
        assert all(end <= len(content) for end in ends)


def raw(*parts: bytes | tuple[str, int]) -> bytes:
    return b"".join(
        part if isinstance(part, bytes) else struct.pack(f"<{part[0]}", part[1]) for part in parts
    )


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


START = raw(b"GGUF", ("I", 3))
HUGE = 2**63
ONE_TENSOR = raw(START, ("Q", 1), ("Q", 0), text(b"w"))
ONE_PAIR = raw(START, ("Q", 0), ("Q", 1), text(b"k"))
PADDING = bytes(1000)


@pytest.mark.parametrize(
    ("content", "error", "named"),
    [
        (b"GGML" + PADDING, BadWeights, "is not a GGUF file"),
        (b"", BadWeights, "truncated"),
        (raw(b"GGUF", ("I", 1)) + PADDING, UnsupportedModel, "GGUF version 1"),
        (raw(b"GGUF", ("I", 3 << 24)) + PADDING, UnsupportedModel, "GGUF version 50331648"),
        (raw(START, ("Q", HUGE), ("Q", 0)) + PADDING, BadWeights, f"{HUGE} tensors"),
        (raw(START, ("Q", 0), ("Q", HUGE)) + PADDING, BadWeights, f"{HUGE} key-value pairs"),
        (raw(START, ("Q", 0), ("Q", 1), ("Q", HUGE)) + PADDING, BadWeights, "bytes in a key"),
        (raw(ONE_PAIR, ("I", 99)) + PADDING, BadWeights, "'k' has the unknown type 99"),
        (raw(ONE_PAIR, ("I", 8), ("Q", HUGE)) + PADDING, BadWeights, "bytes in 'k'"),
        (raw(ONE_PAIR, ("I", 8), text(b"\xff")) + PADDING, BadWeights, "'k' is not UTF-8"),
        (raw(ONE_PAIR, ("I", 9), ("I", 4), ("Q", HUGE)) + PADDING, BadWeights, "elements in 'k'"),
        (raw(ONE_PAIR, ("I", 9), ("I", 4), ("Q", 900)) + PADDING, BadWeights, "truncated"),
        (raw(ONE_PAIR, ("I", 9), ("I", 9), ("Q", 1)) + PADDING, BadWeights, "array of type 9"),
        (
            raw(START, ("Q", 0), ("Q", 2), text(b"k"), ("I", 0), b"1", text(b"k")) + PADDING,
            BadWeights,
            "the key 'k' comes twice",
        ),
        (raw(ONE_TENSOR, ("I", 5)) + PADDING, BadWeights, "dimensions in 'w'"),
        (
            raw(ONE_TENSOR, ("I", 1), ("Q", 4), ("I", 77), ("Q", 0)) + PADDING,
            UnsupportedModel,
            "'w' is of type 77",
        ),
        (
            raw(ONE_TENSOR, ("I", 1), ("Q", 31), ("I", 8), ("Q", 0)) + PADDING,
            BadWeights,
            "'w' has the shape [31] in Q8_0",
        ),
        (
            raw(ONE_TENSOR, ("I", 1), ("Q", 0), ("I", 0), ("Q", 0)) + PADDING,
            BadWeights,
            "'w' has the shape [0]",
        ),
        (
            raw(ONE_TENSOR, ("I", 2), ("Q", 2**40), ("Q", 2**40), ("I", 0), ("Q", 0)) + PADDING,
            BadWeights,
            "truncated inside 'w'",
        ),
        (
            raw(ONE_TENSOR, ("I", 1), ("Q", 4), ("I", 0), ("Q", 32)) + PADDING,
            BadWeights,
            "'w' lies at 32, not at 0",
        ),
        (
            raw(ONE_TENSOR, ("I", 1), ("Q", 4), ("I", 0), ("Q", 0)) + PADDING,
            BadWeights,
            "bytes after its last tensor",
        ),
        (
            raw(
                START, ("Q", 0), ("Q", 1), text(b"general.alignment"), ("I", 4), ("I", 24)
            ) + PADDING,
            BadWeights,
            "general.alignment 24",
        ),
    ],
)  # fmt: skip
def test_a_header_that_lies_is_refused_by_name(
    tmp_path: Path, content: bytes, error: type[InputError], named: str
) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(error) as caught:
        read(path)
    assert named in str(caught.value)
    assert str(path) in str(caught.value)
