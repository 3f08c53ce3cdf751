"""That what we repair is still broken in the library as it comes, and that a test of ours holds it.

A row that fails here is good news: the library mended something, and a fix of ours may go.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.p2p.stock.defects import DEFECTS
from tests.p2p.stock.table import ROWS, Row, shown_on_stock

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.shown_by)
def test_the_defect_is_in_the_library_as_it_comes(row: Row) -> None:
    assert shown_on_stock(row)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.shown_by)
def test_a_test_of_ours_holds_what_fails_there(row: Row) -> None:
    file, _, name = row.ours.partition("::")
    functions = {
        node.name
        for node in ast.walk(ast.parse((HERE / file).read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert name in functions


def test_every_defect_that_can_be_shown_has_its_row() -> None:
    assert {row.shown_by for row in ROWS} == set(DEFECTS)
