"""Flag before environment before file before default, key by key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tessella.core.errors import BadConfig
from tessella.settings.fold import Folded, fold
from tessella.settings.keys import Keys
from tessella.settings.sources import environment_source, file_source, flags_source


def folded(keys: Keys, file: Path | None, environ: dict[str, str], flags: dict[str, Any]) -> Folded:
    files = [file_source(keys, file, 1000)] if file else []
    return fold(keys, (*files, environment_source(keys, environ), flags_source(keys, flags)))


@pytest.mark.parametrize(
    ("in_file", "variable", "flag", "value", "source"),
    [
        (False, None, None, None, "default"),
        (True, None, None, 1, "file"),
        (True, "2", None, 2, "environment"),
        (True, "2", 3, 3, "flag"),
        (False, None, 3, 3, "flag"),
        (True, " ", None, 1, "file"),
    ],
)
def test_who_goes_before_whom(
    keys: Keys,
    in_file: bool,
    variable: str | None,
    flag: int | None,
    value: int | None,
    source: str,
    tmp_path: Path,
) -> None:
    file = tmp_path / "toy.toml"
    file.write_text("[play]\nplayers = 1\n")
    environ = {} if variable is None else {"TOY_PLAYERS": variable}
    found = folded(keys, file if in_file else None, environ, {"players": flag})
    assert found.values.get("players") == value
    assert found.sources["players"] == source
    assert set(found.sources) == set(keys.by_name)


def test_a_value_that_another_goes_before_is_read_too(keys: Keys) -> None:
    with pytest.raises(BadConfig, match="TOY_PLAYERS"):
        folded(keys, None, {"TOY_PLAYERS": "9"}, {"players": 3})
