"""The benchmark of the ledger measures what it says: every proof is paid and every entry read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 100
FIGURES = {
    "settlements_per_s",
    "route_settlements_per_s",
    "page_ms_p99",
    "inclusion_ms_p99",
    "rss_mb",
}


@pytest.mark.mesh
def test_it_prints_its_figures_and_everything_was_paid() -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/ledger.py"), "--json", "--small"],
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
    assert found["unpaid"] == 0
    assert all(found[name] > 0 for name in FIGURES)
    print(f"ledger {line}")  # noqa: T201 - the figures are what a run is for
