"""A ledger in memory."""

from __future__ import annotations

import pytest

from tests.musivum.ledger.keeping import Kept


@pytest.fixture
def kept() -> Kept:
    """A ledger that nobody brought anything to."""
    return Kept()
