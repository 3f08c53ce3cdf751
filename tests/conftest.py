"""What holds for every test: one arithmetic thread, and an environment without our own keys."""

from __future__ import annotations

import os

import pytest

# Before torch is imported anywhere: tests share two cores with each other.
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own environment must not decide a test."""
    for name in [key for key in os.environ if key.startswith("TESSELLA_")]:
        monkeypatch.delenv(name)
