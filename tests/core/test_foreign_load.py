from __future__ import annotations

import pytest

from tessella.core.foreign_load import ForeignLoad, foreign_pct


@pytest.mark.parametrize(
    ("used", "ours", "foreign"),
    [(80.0, 0.0, 80.0), (80.0, 0.5, 30.0), (80.0, 0.9, 0.0), (80.0, 3.0, 0.0), (5.0, -1.0, 5.0)],
)
def test_what_we_compute_ourselves_is_nobody_elses(
    used: float, ours: float, foreign: float
) -> None:
    assert foreign_pct(used, ours) == pytest.approx(foreign)


def busy_after(samples: list[float | None], limit: float = 50.0) -> list[bool]:
    load, found = ForeignLoad(limit), []
    for number, sample in enumerate(samples):
        load = load.after(sample, 10.0 * number)
        found.append(load.is_busy)
    return found


@pytest.mark.parametrize(
    ("samples", "busy"),
    [
        pytest.param([90.0] * 6, False, id="fifty seconds"),
        pytest.param([90.0] * 7, True, id="a minute"),
        pytest.param([90.0] * 4 + [10.0] + [90.0] * 6, False, id="a minute with a break"),
        pytest.param([90.0] * 4 + [None] + [90.0] * 6, False, id="what was not seen is a break"),
        pytest.param([50.0] * 20, False, id="the limit itself is allowed"),
        pytest.param([90.0] * 7 + [0.0] * 6, True, id="idle for fifty seconds"),
        pytest.param([90.0] * 7 + [0.0] * 7, False, id="idle for a minute"),
        pytest.param([90.0] * 7 + [45.0] * 20, True, id="not far enough below"),
        pytest.param([90.0] * 7 + [40.0] * 7, False, id="far enough below"),
    ],
)
def test_a_gpu_is_busy_or_idle_once_it_was_so_for_a_minute(
    samples: list[float | None], busy: bool
) -> None:
    assert busy_after(samples)[-1] is busy
