"""The benchmark of musivum measures what it says: every call is accepted at the other end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 100
FIGURES = {
    "announces_per_s",
    "p99_ms",
    "rss_growth_mb",
    "rss_per_connection_kb",
    "http_announces_per_s",
    "place_ms",
}


@pytest.mark.mesh
def test_it_prints_its_figures_and_no_call_was_refused() -> None:
    ran = subprocess.run(
        [
            sys.executable,
            str(ROOT / "benchmarks/tracker.py"),
            "--json",
            *("--nodes", "60", "--connections", "20", "--announces", "400"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    (line,) = ran.stdout.splitlines()
    found = json.loads(line)
    assert found.keys() >= FIGURES
    assert found["refused"] == 0
    assert all(found[name] > 0 for name in FIGURES - {"rss_growth_mb", "rss_per_connection_kb"})
    print(f"tracker {line}")  # noqa: T201 - the figures are what a run is for
