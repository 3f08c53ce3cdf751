from __future__ import annotations

import pytest
import torch

from tessella.core.errors import BadConfig
from tessella.core.shapes import DType
from tessella.engine.device import Device, our_dtype, pick_device, serving_dtype, torch_dtype


@pytest.fixture
def present(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    words: tuple[str, ...] = request.param
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in words)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "metal" in words)


@pytest.mark.parametrize(
    ("present", "best"),
    [((), Device.CPU), (("metal",), Device.METAL), (("cuda", "metal"), Device.CUDA)],
    indirect=["present"],
)
@pytest.mark.usefixtures("present")
def test_without_a_word_the_best_device_present_is_picked(best: Device) -> None:
    assert pick_device(None) is best


@pytest.mark.parametrize("present", [("metal",)], indirect=True)
@pytest.mark.usefixtures("present")
def test_a_device_that_is_not_there_is_named_beside_those_that_are() -> None:
    with pytest.raises(BadConfig, match=r"no cuda device .* has metal, cpu"):
        pick_device("cuda")


@pytest.mark.parametrize("word", ["mps", "CPU", "", "gpu"])
def test_a_word_that_is_no_device_is_named(word: str) -> None:
    with pytest.raises(BadConfig, match=f"unknown device '{word}'; one of cuda, metal, cpu"):
        pick_device(word)


def test_metal_is_what_torch_calls_mps() -> None:
    assert [device.torch_device.type for device in Device] == ["cuda", "mps", "cpu"]


@pytest.mark.parametrize(
    ("device", "stored", "wanted"),
    [
        (Device.CPU, {"BF16"}, DType.F32),
        (Device.CUDA, {"BF16", "F32"}, DType.BF16),
        (Device.CUDA, {"F16", "F32"}, DType.F16),
        (Device.METAL, {"f16"}, DType.F16),
        (Device.METAL, {"Q4_1", "F32"}, DType.BF16),
    ],
)
def test_the_serving_dtype_follows_device_and_checkpoint(
    device: Device, stored: set[str], wanted: DType
) -> None:
    assert serving_dtype(device, stored) is wanted


@pytest.mark.parametrize("dtype", DType)
def test_dtypes_translate_both_ways_and_keep_their_size(dtype: DType) -> None:
    assert our_dtype(torch_dtype(dtype)) is dtype
    assert torch_dtype(dtype).itemsize == dtype.itemsize
