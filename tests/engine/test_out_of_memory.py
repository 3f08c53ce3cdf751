from __future__ import annotations

import gc
import weakref

import pytest
import torch
import trio

from tessella.core.errors import BadRequest, OutOfMemory
from tessella.engine.compute import Job, open_compute
from tessella.engine.device import Device
from tessella.engine.out_of_memory import means_out_of_memory, release_memory, told

# More than any machine has, and less than 2**63.
TOO_MUCH = 1 << 50


def raised_by_the_cpu() -> Exception:
    try:
        torch.empty(TOO_MUCH)
    except RuntimeError as exc:
        return exc
    raise LookupError("that much memory was there")


@pytest.mark.parametrize(
    ("error", "means"),
    [
        pytest.param(MemoryError(), True, id="python"),
        pytest.param(torch.OutOfMemoryError("CUDA out of memory. Tried to"), True, id="cuda"),
        pytest.param(RuntimeError("CUDA error: out of memory"), True, id="the driver"),
        pytest.param(
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), True, id="cublas"
        ),
        pytest.param(RuntimeError("MPS backend out of memory (MPS allocated"), True, id="metal"),
        pytest.param(RuntimeError("CUDA error: an illegal memory access"), False, id="a bug"),
        pytest.param(RuntimeError("shapes do not fit"), False, id="another"),
        pytest.param(ValueError("out of memory"), False, id="no allocator says it so"),
        pytest.param(BadRequest("a prompt about being out of memory"), False, id="a text"),
    ],
)
def test_what_allocators_say_is_understood(error: Exception, means: bool) -> None:
    assert means_out_of_memory(error) is means
    assert isinstance(told(error), OutOfMemory) is means
    assert means or told(error) is error


def test_what_the_cpu_says_is_understood() -> None:
    assert means_out_of_memory(raised_by_the_cpu())


async def test_work_that_runs_out_of_memory_lets_go_of_what_it_had() -> None:
    kept: list[weakref.ref[torch.Tensor]] = []

    def work(job: Job) -> None:
        activations = torch.empty(1024)
        kept.append(weakref.ref(activations))
        torch.empty(TOO_MUCH)

    async with open_compute() as compute:
        with pytest.raises(OutOfMemory) as caught:
            await compute.run(work)
        assert (caught.value.status, caught.value.retry) == (503, True)
        assert (caught.value.__cause__, caught.value.__context__) == (None, None)
        # Without the collector: nothing may have to find it.
        gc.disable()
        try:
            assert kept[0]() is None
        finally:
            gc.enable()
        with trio.fail_after(5.0):
            assert await compute.run(lambda job: 1) == 1


def test_memory_is_given_back_without_a_gpu() -> None:
    release_memory(Device.CPU)
