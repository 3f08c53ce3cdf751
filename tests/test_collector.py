"""What lives is left alone, and what died of it is given back by the next call."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from tessella.collector import spare_the_collector


class Ring:
    """Garbage that only the collector frees."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_lives_is_not_gone_through_again_and_what_was_dead_is_freed() -> None:
    ring, there = weakref.ref(Ring()), len(gc.get_objects())
    assert ring() is not None
    spare_the_collector()
    assert ring() is None
    assert len(gc.get_objects()) < there // 100


def test_what_dies_is_freed_by_the_next_call() -> None:
    living = Ring()
    ring = weakref.ref(living)
    spare_the_collector()
    del living
    gc.collect()
    assert ring() is not None, "it was looked at"
    spare_the_collector()
    assert ring() is None
