"""Devices by the words of config and HTTP, and what torch calls them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import torch

from tessella.core.errors import BadConfig
from tessella.core.shapes import DType


class Device(Enum):
    """Where a shard computes. The value is the word used in config, HTTP and on the wire."""

    CUDA = "cuda"
    METAL = "metal"
    CPU = "cpu"

    @property
    def torch_device(self) -> torch.device:
        """The same device as torch names it."""
        return torch.device("mps" if self is Device.METAL else self.value)

    @property
    def present(self) -> bool:
        """Whether this machine has one that this torch can use."""
        if self is Device.CUDA:
            return torch.cuda.is_available()
        return self is Device.CPU or torch.backends.mps.is_available()


def pick_device(word: str | None) -> Device:
    """The device of that word; the best one present for None.

    Raises BadConfig that names a word we do not know, or a device this machine lacks.
    """
    present = [device for device in Device if device.present]
    if word is None:
        return present[0]
    known = [device.value for device in Device]
    if word not in known:
        raise BadConfig(f"unknown device {word!r}; one of {', '.join(known)}")
    device = Device(word)
    if device not in present:
        here = ", ".join(each.value for each in present)
        raise BadConfig(f"no {word} device that torch can use here; this machine has {here}")
    return device


def serving_dtype(device: Device, stored: Iterable[str]) -> DType:
    """The dtype a model is served in unless config says otherwise.

    f32 on the CPU, whose matrix multiplies in 16 bits are the slower ones. Elsewhere the 16-bit
    dtype in which the checkpoint stores tensors (`TensorInfo.stored`), and bf16 if it stores none:
    it overflows no sooner than the f32 that quantised weights stand for.
    """
    if device is Device.CPU:
        return DType.F32
    words = {word.upper() for word in stored}
    return DType.F16 if "F16" in words and "BF16" not in words else DType.BF16


def gpu_in_use() -> str:
    """The GPU that `cuda` is in this process, as the driver's own tools name it."""
    return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"


def limit_threads(count: int) -> None:
    """How many threads one operation may use in this process, for all of torch."""
    torch.set_num_threads(count)


_TORCH = {DType.F32: torch.float32, DType.F16: torch.float16, DType.BF16: torch.bfloat16}
_OURS = {theirs: ours for ours, theirs in _TORCH.items()}


def torch_dtype(dtype: DType) -> torch.dtype:
    """Our dtype as torch names it."""
    return _TORCH[dtype]


def our_dtype(dtype: torch.dtype) -> DType:
    """The inverse. Raises KeyError for an element type that is never served."""
    return _OURS[dtype]
