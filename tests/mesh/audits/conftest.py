"""A mesh whose nodes audit each other, for all cases of a file, and how a case prints its line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.mesh.audits.watched import Watched, open_watched


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A mesh of honest nodes, for all cases of a file."""
    with open_watched(tmp_path_factory.mktemp("watched")) as running:
        yield running


Say = Callable[[str, str], None]


@pytest.fixture
def say(record_property: Callable[[str, object], None]) -> Say:
    """A function that prints the line of a case."""

    def said(name: str, line: str) -> None:
        print(f"\n{line}")  # noqa: T201 - what a run is for
        record_property(name, line)

    return said
