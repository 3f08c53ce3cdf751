"""What it is called when a device has no memory left, and how memory goes back to it.

torch says it in as many words as it has allocators. Here it becomes one error of the tree, without
the traceback of what failed: its frames hold the very tensors whose memory is wanted back.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable

import torch

from tessella.core.errors import OutOfMemory
from tessella.engine.device import Device

# What an allocator raises as a plain RuntimeError: the CPU's, Metal's, and CUDA's libraries.
_SAYINGS = (
    "can't allocate memory",
    "out of memory",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
)


def told(error: Exception) -> Exception:
    """The error itself; OutOfMemory in its place, and nothing of it, if that is what it means."""
    if not means_out_of_memory(error):
        return error
    return OutOfMemory("this node has no memory left for this session: try a shorter one, or later")


def means_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory could not be had."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    said = str(error).lower() if isinstance(error, RuntimeError) else ""
    return any(saying in said for saying in _SAYINGS)


def release_memory(device: Device) -> None:
    """Give back what the allocators keep for later. Waits for a GPU: call it off the loop."""
    if device is Device.CUDA:
        torch.cuda.empty_cache()
    elif device is Device.METAL:
        torch.mps.empty_cache()
    _trim_heap()()


@functools.cache
def _trim_heap() -> Callable[[], object]:
    """glibc keeps freed pages in the middle of its heap until it is asked for them."""
    if sys.platform != "linux":
        return lambda: None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda: trim(0)) if trim is not None else lambda: None
