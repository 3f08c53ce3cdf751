"""Habits that no linter holds: size, docstrings, and names that say what a file holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("tessella", "musivum", "p2p")
SOURCES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
MOST_LINES = 400
MOST_EXAMPLE_LINES = 100
# A file of these names ends up holding what belongs nowhere.
NAMELESS = {"base", "common", "helpers", "manager", "misc", "utils"}
# Where tests stand for one module each. Elsewhere some hold what several do together.
MIRRORED = {
    "core": "tessella/core",
    "engine": "tessella/engine",
    "musivum": "musivum",
    "musivum/bodies": "musivum/bodies",
    "musivum/nodes": "musivum/nodes",
    "musivum/pages": "musivum/pages",
    "musivum/placing": "musivum/placing",
    "musivum/routes": "musivum/routes",
    "musivum/settings": "musivum/settings",
    "musivum/store": "musivum/store",
    "settings": "tessella/settings",
    "web": "tessella/web",
}
DIRECTORIES = {
    "cli",
    "core",
    "engine",
    "examples",
    "interop",
    "mesh",
    "meta",
    "musivum",
    "p2p",
    "settings",
    "web",
    "worker",
}


def named(file: Path) -> str:
    return str(file.relative_to(ROOT))


def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def length(file: Path) -> int:
    return len(file.read_text().splitlines())


def public(parent: ast.Module | ast.ClassDef) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """What others may use of a module or class, classes with what is in them."""
    for node in parent.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("_"):
                continue
            yield node  # type: ignore[misc]
            if isinstance(node, ast.ClassDef):
                yield from public(node)


def test_every_file_says_at_its_top_what_it_holds() -> None:
    assert [named(file) for file in SOURCES if not ast.get_docstring(tree(file))] == []


def test_whatever_others_may_use_says_what_it_does() -> None:
    silent = [
        f"{named(file)}:{node.lineno} {node.name}"
        for file in SOURCES
        for node in public(tree(file))
        if not ast.get_docstring(node)
    ]
    assert silent == []


def test_no_file_is_too_long_to_hold_one_idea() -> None:
    assert [named(file) for file in SOURCES if length(file) > MOST_LINES] == []


def test_files_are_named_for_what_they_hold() -> None:
    parts = {named(file): set(file.relative_to(ROOT).with_suffix("").parts) for file in SOURCES}
    assert [name for name, words in parts.items() if words & NAMELESS] == []


def test_an_example_is_a_lesson_of_one_page_that_says_how_to_run_it() -> None:
    assert len(EXAMPLES) >= 4
    for file in EXAMPLES:
        assert length(file) < MOST_EXAMPLE_LINES, file.name
        assert f"python examples/{file.name}" in (ast.get_docstring(tree(file)) or ""), file.name


def test_tests_stand_where_one_looks_for_them() -> None:
    places = {file.relative_to(ROOT / "tests").parts[0] for file in TESTS}
    strange = {place for place in places if not place.endswith(".py")} - DIRECTORIES
    assert strange == set()
    lost = [
        named(file)
        for file in TESTS
        if (package := MIRRORED.get(str(file.parent.relative_to(ROOT / "tests"))))
        and not (ROOT / package / file.name.removeprefix("test_")).exists()
        and not (ROOT / package / file.stem.removeprefix("test_")).is_dir()
    ]
    assert lost == []


def test_no_test_directory_is_a_package() -> None:
    """pytest imports by path here: two files may have one name."""
    assert list((ROOT / "tests").rglob("__init__.py")) == []
