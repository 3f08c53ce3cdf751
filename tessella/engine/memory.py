"""How much memory a device has for layers, without taking any of it."""

from __future__ import annotations

import os
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
"""Of a container, or of a service: what it may use may be less than what the machine has."""
_KIB = 1024
_READ_BYTES = 64 * _KIB


def free_memory(device: str) -> int:
    """Bytes that layers could take now on `cuda`, `metal` or `cpu`. Raises ValueError for others.

    Of the first GPU what no program holds; of Metal what Apple recommends to use at most; of the
    CPU what is available without swapping, and what a container's limit leaves of it.
    """
    if device == "cuda":
        return _cuda()
    if device == "metal":
        return _metal()
    if device == "cpu":
        return free_ram()
    raise ValueError(f"unknown device {device!r}")


# torch is imported where it is needed: the memory of a CPU is told without it as well.
def _cuda() -> int:
    import torch

    free, _ = torch.cuda.mem_get_info()
    return int(free)


def _metal() -> int:
    import torch

    return max(0, torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())


def free_ram(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int:
    """Bytes of RAM that are available to this process."""
    here = _available(meminfo)
    limit = _limit(cgroup)
    return here if limit is None else min(here, limit)


def _available(meminfo: Path) -> int:
    for line in _read(meminfo).splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if name == "MemAvailable" and words and words[0].isdecimal():
            return int(words[0]) * _KIB
    # macOS does not tell what is free, only what there is.
    pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
    return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")


def _limit(cgroup: Path) -> int | None:
    """What the limit of a control group (v2) leaves; None without one."""
    most, used = _read(cgroup / "memory.max").strip(), _read(cgroup / "memory.current").strip()
    if not (most.isdecimal() and used.isdecimal()):
        return None
    # Files that were read are counted as used, and given back when memory is wanted.
    stat = dict(line.split(" ", 1) for line in _read(cgroup / "memory.stat").splitlines() if line)
    cached = stat.get("inactive_file", "0").strip()
    held = int(used) - (int(cached) if cached.isdecimal() else 0)
    return max(0, int(most) - max(0, held))


def _read(path: Path) -> str:
    """The text of a file of the kernel; empty where there is none."""
    try:
        with path.open("rb") as file:
            return file.read(_READ_BYTES).decode(errors="replace")
    except OSError:
        return ""
