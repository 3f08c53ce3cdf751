"""Where a database is, from its URL. No error shows the URL, since it may hold a password."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from tessella.core.errors import BadConfig

_POSTGRES = {"postgres", "postgresql", "postgresql+psycopg"}
_FORMS = "sqlite:///PATH or postgresql://USER@HOST/DATABASE"


def locate(text: str) -> Path | URL:
    """The file of a `sqlite:///path` URL, or a `postgresql://` URL for the driver we use.

    `sqlite:///a/b` is relative to the working directory, `sqlite:////a/b` is not, and
    `sqlite:///~/a` is in the home directory. Raises BadConfig for anything else.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise BadConfig(f"database_url: not a URL like {_FORMS}") from None
    if url.drivername == "sqlite":
        return _file(url)
    if url.drivername in _POSTGRES:
        return _server(url)
    raise BadConfig(f"database_url: {url.drivername[:32]!r} is not known: {_FORMS}")


def _file(url: URL) -> Path:
    if url.host or url.username or url.password or url.port:
        raise BadConfig("database_url: a sqlite URL has three slashes: sqlite:///PATH")
    if url.query:
        raise BadConfig("database_url: a sqlite URL has no options")
    if not url.database or url.database == ":memory:":
        raise BadConfig("database_url: a database in memory outlives nothing: sqlite:///PATH")
    return Path(url.database)


def _server(url: URL) -> URL:
    if "@" in (url.host or ""):
        raise BadConfig("database_url: an @ in a password is written %40")
    return url.set(drivername="postgresql+psycopg")
