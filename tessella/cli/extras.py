"""The door to what only the worker part of the lock file brings: one clear line without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tessella.core.errors import BadConfig

WORKER_EXTRA = (
    "torch",
    "numpy",
    "safetensors",
    "tokenizers",
    "gguf",
    "huggingface_hub",
    "llguidance",
)


@contextmanager
def worker_extra() -> Iterator[None]:
    """Import the engine in here. Raises BadConfig that names what is not installed."""
    try:
        yield
    except ModuleNotFoundError as exc:
        missing = (exc.name or "").partition(".")[0]
        if missing not in WORKER_EXTRA:
            raise
        raise BadConfig(
            f"{missing} is not installed here: pip install --no-deps -r requirements.lock brings it"
        ) from None
