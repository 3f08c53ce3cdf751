from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tessella.core.errors import BadConfig
from tessella.engine.device import Device
from tessella.worker import gpu_load
from tessella.worker.gpu_load import GpuQuestions, check_gpu, read_utilisation, watch_gpu


@pytest.mark.parametrize(
    ("answer", "percent"),
    [
        (b"0\n", 0.0),
        (b"37\n", 37.0),
        (b"100\n", 100.0),
        (b"101\n", None),
        (b"[N/A]\n", None),
        (b"", None),
        (b"1\n2\n", None),
        (b"\xff\n", None),
        ("٣\n".encode(), None),
        (b"No devices were found\n", None),
    ],
)
def test_an_answer_is_a_percentage_or_nothing(answer: bytes, percent: float | None) -> None:
    assert read_utilisation(answer) == percent


def a_program(directory: Path, script: str) -> None:
    program = directory / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which a program may be put that is then found first."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


@pytest.mark.parametrize(
    ("script", "percent"),
    [("echo 42", 42.0), ("echo 42; exit 9", None), ("echo no device >&2; exit 6", None)],
)
async def test_the_driver_is_asked(programs: Path, script: str, percent: float | None) -> None:
    a_program(programs, script)
    assert await GpuQuestions("0").ask() == percent


async def test_the_driver_is_asked_for_one_gpu(programs: Path) -> None:
    a_program(programs, '[ "$1" = --id=GPU-7 ] && echo 7')
    assert await GpuQuestions("GPU-7").ask() == 7.0


async def test_a_driver_that_hangs_is_waited_for_no_longer_than_that(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_load, "ASK_SECONDS", 0.1)
    a_program(programs, "exec sleep 5")
    with trio.fail_after(2.0):
        assert await GpuQuestions("0").ask() is None


async def test_without_the_program_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await GpuQuestions("0").ask() is None


@pytest.mark.parametrize("device", [Device.CPU, Device.METAL])
def test_a_node_without_a_gpu_is_told_which_key_it_cannot_heed(device: Device) -> None:
    with pytest.raises(BadConfig, match=f"auto_pause: .* computes on {device.value}"):
        check_gpu("auto_pause", device)


def test_a_node_without_the_program_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadConfig, match="auto_pause: needs nvidia-smi"):
        check_gpu("auto_pause", Device.CUDA)
    a_program(tmp_path, "echo 0")
    check_gpu("auto_pause", Device.CUDA)


def used(percent: float) -> Callable[[], Awaitable[float | None]]:
    async def ask() -> float | None:
        await trio.lowlevel.checkpoint()
        return percent

    return ask


@pytest.mark.parametrize(
    ("percent", "our_part", "paused"),
    [
        pytest.param(80.0, 0.0, True, id="others"),
        pytest.param(20.0, 0.0, False, id="hardly anybody"),
        pytest.param(90.0, 0.9, False, id="we ourselves"),
        pytest.param(100.0, 0.3, True, id="others and we"),
    ],
)
async def test_it_makes_way_for_what_others_compute_alone(
    autojump_clock: MockClock, percent: float, our_part: float, paused: bool
) -> None:
    said: list[bool] = []

    def computed() -> float:
        return our_part * trio.current_time()

    with trio.move_on_after(95.0):
        await watch_gpu(50.0, used(percent), computed, said.append)
    assert said[-1] is paused
    assert said[:5] == [False] * 5, "nobody makes way before it lasts for a minute"
