from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tessella.engine.memory import free_memory, free_ram

MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n"
AVAILABLE = 400 * 1024


def machine(directory: Path, **files: str) -> tuple[Path, Path]:
    """The kernel's files of a machine, in a directory: meminfo, and those of a control group."""
    (directory / "meminfo").write_text(MEMINFO)
    for name, text in files.items():
        (directory / f"memory.{name}").write_text(text)
    return directory / "meminfo", directory


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, AVAILABLE),
        ({"max": "max\n", "current": "5\n"}, AVAILABLE),
        ({"max": "300000\n", "current": "100000\n"}, 200000),
        (
            {"max": "300000\n", "current": "100000\n", "stat": "anon 1\ninactive_file 40000\n"},
            240000,
        ),
        ({"max": "300000\n", "current": "400000\n"}, 0),
        ({"max": "99999999\n", "current": "1\n"}, AVAILABLE),
        ({"max": "300000\n"}, AVAILABLE),
    ],
)
def test_ram_is_what_machine_and_container_leave(
    files: dict[str, str], free: int, tmp_path: Path
) -> None:
    assert free_ram(*machine(tmp_path, **files)) == free


def test_without_the_files_of_linux_the_system_is_asked(tmp_path: Path) -> None:
    assert free_ram(tmp_path / "no", tmp_path) > 0


def test_of_a_gpu_it_is_what_no_program_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (7, 9))
    assert free_memory("cuda") == 7


def test_of_metal_it_is_what_is_recommended_and_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 9)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 2)
    assert free_memory("metal") == 7


def test_other_words_are_refused() -> None:
    with pytest.raises(ValueError, match="'gpu'"):
        free_memory("gpu")
