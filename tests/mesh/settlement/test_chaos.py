"""The benchmark that kills workers and musivum at random, for a few runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.mesh.settlement.forked import ROOT

pytestmark = [pytest.mark.mesh, pytest.mark.slow, pytest.mark.timeout(300)]

RUNS, SEED = 10, 20_251
SECONDS = 280.0


def test_nothing_is_lost_or_paid_twice_however_often_they_die(
    record_property: Callable[[str, object], None],
) -> None:
    script = ROOT / "benchmarks" / "settlement_chaos.py"
    argv = [sys.executable, str(script), "--runs", f"{RUNS}", "--seed", f"{SEED}", "--json"]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    print(f"\nchaos {result}")  # noqa: T201 - what a run is for
    record_property("chaos", ran.stdout)
    assert result["kills"] >= RUNS
    assert result["paid"] == result["proofs"] > 0
    assert (result["lost"], result["double"], result["chain_ok"]) == (0, 0, 1)
