"""Where a database is, and that no refusal tells what is secret in a URL."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import URL

from musivum.store.urls import locate
from tessella.core.errors import BadConfig

FILES = [
    ("sqlite:///musivum.db", "musivum.db"),
    ("sqlite:///a/b.db", "a/b.db"),
    ("sqlite:////var/lib/musivum.db", "/var/lib/musivum.db"),
    ("sqlite:///~/musivum.db", "~/musivum.db"),
]
REFUSED = [
    ("", "not a URL"),
    ("/var/lib/musivum.db", "not a URL"),
    ("sqlite://", "in memory"),
    ("sqlite:///:memory:", "in memory"),
    ("sqlite://host/a.db", "three slashes"),
    ("sqlite:///a.db?mode=ro", "no options"),
    ("mysql://u:hidden@host/db", "'mysql' is not known"),
    ("postgresql+asyncpg://u:hidden@host/db", "'postgresql\\+asyncpg' is not known"),
    ("postgresql://u:hidden@host:hidden/db", "not a URL"),
    ("postgresql://u:hid@hidden@host/db", "written %40"),
]


@pytest.mark.parametrize(("url", "path"), FILES)
def test_a_file_has_three_slashes_and_its_path(url: str, path: str) -> None:
    assert locate(url) == Path(path)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_postgresql_is_spoken_by_one_driver(scheme: str) -> None:
    url = locate(f"{scheme}://user:p%40ss@host:5433/name?sslmode=require")
    assert isinstance(url, URL)
    assert url.drivername == "postgresql+psycopg"
    assert (url.username, url.password, url.host, url.port) == ("user", "p@ss", "host", 5433)
    assert (url.database, dict(url.query)) == ("name", {"sslmode": "require"})


@pytest.mark.parametrize(("url", "why"), REFUSED)
def test_anything_else_is_refused_in_one_line(url: str, why: str) -> None:
    with pytest.raises(BadConfig, match=f"^database_url: .*{why}") as caught:
        locate(url)
    assert "hidden" not in str(caught.value)
    assert "\n" not in str(caught.value)
