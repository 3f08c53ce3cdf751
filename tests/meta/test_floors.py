"""The contracts of import-linter in pyproject.toml would see what they forbid."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("tessella", "musivum", "p2p")
LINT_SECONDS = 60
IMPORT_SECONDS = 60

# One line that breaks each contract, and the file it is written into.
VIOLATIONS = {
    "floors": ("tessella/engine/rope.py", "import p2p.streams"),
    "hub": ("tessella/cli/peers.py", "import musivum.nodes.roster"),
    "programs": ("tessella/worker/node.py", "import p2p.testing"),
    "rooms": ("musivum/nodes/roster.py", "import musivum.doors.tracker"),
    "ground": ("tessella/core/plan.py", "import time"),
    "libp2p": ("musivum/app.py", "import libp2p.abc"),
    "torch": ("tessella/worker/sessions.py", "import torch"),
    "light": ("tessella/client.py", "import tokenizers"),
}

# What values and rules are written with. `msgpack` and `nacl` are functions of bytes.
GROUND_IMPORTS = {
    "__future__", "base64", "bisect", "collections", "dataclasses", "enum", "functools", "hashlib",
    "heapq", "hmac", "ipaddress", "itertools", "json", "math", "msgpack", "nacl", "operator", "re",
    "statistics", "struct", "tessella", "types", "typing",
}  # fmt: skip

WITHOUT_TORCH = """
import sys
for name in ("torch", "numpy", "safetensors", "tokenizers", "gguf", "huggingface_hub"):
    sys.modules[name] = None
import musivum.app, musivum.cli, p2p.host, tessella.cli.main, tessella.cli.worker, tessella.client
print(*sorted(name for name in sys.modules if name.startswith("tessella.engine")))
"""


def contracts() -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return found


def modules_of(package: str) -> set[str]:
    """The modules and packages right inside a package."""
    found = (file.with_suffix("") for file in (ROOT / package).glob("*.py"))
    inner = (file.parent for file in (ROOT / package).glob("*/__init__.py"))
    return {f"{package}.{one.name}" for one in (*found, *inner) if one.name != "__init__"}


def lint(directory: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the packages in a directory, whatever packages are installed."""
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [sys.executable, str(program), "--no-logo", "--no-cache"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=LINT_SECONDS,
        env={"COLUMNS": "200", "PYTHONPATH": str(directory)},
    )


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The packages and their contracts, to be broken."""
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_packages_keep_their_floors() -> None:
    ended = lint(ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_contract_is_broken_by_one_import_too_many(copied: Path) -> None:
    for file, line in VIOLATIONS.values():
        with (copied / file).open("a") as source:
            source.write(f"\n\ndef _too_far() -> None:\n    {line}\n")
    ended = lint(copied)
    assert ended.returncode == 1, ended.stderr
    broken = re.findall(r"^(.+) BROKEN(?: \(1 ignored import\))?$", ended.stdout, re.MULTILINE)
    assert broken == [contract["name"] for contract in contracts()]
    assert [contract["id"] for contract in contracts()] == list(VIOLATIONS)
    for file, line in VIOLATIONS.values():
        importer = file.removesuffix(".py").replace("/", ".")
        imported = line.removeprefix("import ").removesuffix(".abc")
        assert re.search(rf"{importer} -> {imported} \(l\.\d+\)", ended.stdout), (importer, line)


def test_the_ground_imports_only_what_has_no_effects() -> None:
    for file in (ROOT / "tessella/core").rglob("*.py"):
        assert imports(file) <= GROUND_IMPORTS, file.name


def test_no_module_is_left_out_of_the_contracts() -> None:
    of = {contract["id"]: contract for contract in contracts()}
    placed = {name for layer in of["floors"]["layers"] for name in layer.split(" | ")}
    assert placed == modules_of("tessella") | {"musivum", "p2p"}
    assert set(of["torch"]["source_modules"]) == placed - {"tessella.engine"}
    tools = {"musivum.cli", "musivum.testing", "musivum.testing_http"}
    assert set(of["programs"]["source_modules"]) == modules_of("musivum") - tools | {"tessella"}


def imports(file: Path) -> set[str]:
    """The packages that a file imports, also inside functions and for annotations alone."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." if node.level else (node.module or "").partition(".")[0])
    return found


@pytest.mark.mesh
def test_musivum_and_the_commands_start_where_torch_cannot_be_imported() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=IMPORT_SECONDS,
    )
    assert (ended.returncode, ended.stdout) == (0, "\n"), ended.stderr
