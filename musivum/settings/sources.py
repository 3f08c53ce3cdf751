"""From flags, environment and file to one configuration, and where each value came from."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from musivum.config import PEERS_NAME, MusivumConfig
from musivum.settings.kinds import Kind, kind_of
from musivum.settings.masking import masked
from musivum.settings.token import TOKEN_VARIABLE
from tessella.core.errors import BadConfig, InputError

T = TypeVar("T")

FILE_NAME = "musivum.toml"
PREFIX = "MUSIVUM_"
# 16384 peers that are allowed are 1 MiB of peer ids.
MAX_FILE_BYTES = 4 * 1024 * 1024
_SHOWN = 200

FLAGS = {
    "listen": "--p2p",
    "http": "--http",
    "data": "--data",
    "database_url": "--database-url",
    "bootstrap_only": "--bootstrap-only",
    "bootstrap": "--bootstrap",
    "announce": "--announce",
    "allow_private_addrs": "--allow-private-addrs",
    "dial_back": "--no-dial-back",
    "min_vram_mb": "--min-vram-mb",
}
"""The flags of `musivum serve` that set a key."""

KINDS: dict[str, Kind] = {field.name: kind_of(field) for field in fields(MusivumConfig)}
"""Every key, in the order of `MusivumConfig`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A configuration, and who set what."""

    config: MusivumConfig
    sources: Mapping[str, str]
    """For every key: `default`, `file`, `environment` or `flag`."""
    file: Path | None
    """The file that was read."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Values of one place, as TOML would give them."""

    name: str
    values: Mapping[str, object]
    where: Callable[[str], str]
    """Where a key was set, for the end of a sentence."""


def load_settings(
    file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> MusivumConfig:
    """The configuration; see `read_settings`."""
    return read_settings(file, environ, flags).config


def read_settings(
    file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> Settings:
    """Flag before environment (`MUSIVUM_<KEY>`) before file before default, key by key.

    Without `file` it is `musivum.toml` in the data directory, if there is one. `flags` are values
    by key as TOML would have them; None is not set, as is an environment variable without text.
    Raises BadConfig or BadAddress that names key, value and source: for what is not known, of
    another type or out of its rule, and for a file that cannot be read.
    """
    given = _flags(flags)
    environment = _environment(environ)
    found = file or _usual_file(given, environment)
    sources = [_file(found)] if found is not None else []
    values: dict[str, Any] = {}
    names = dict.fromkeys(KINDS, "default")
    for source in (*sources, environment, given):
        for key in source.values:
            values[key] = _read(key, source)
            names[key] = source.name
    config = MusivumConfig(**values)
    if "snapshot" not in values:
        config = replace(config, snapshot=config.data.expanduser() / PEERS_NAME)
    return Settings(config, names, found)


def variable_of(key: str) -> str:
    """The environment variable of a key."""
    return PREFIX + key.upper()


def _flags(flags: Mapping[str, object]) -> _Source:
    values = {key: value for key, value in flags.items() if value is not None}
    return _Source("flag", values, lambda key: FLAGS[key])


def _environment(environ: Mapping[str, str]) -> _Source:
    keys = {variable_of(key): key for key in KINDS}
    values: dict[str, object] = {}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(PREFIX) or not text.strip() or variable == TOKEN_VARIABLE:
            continue
        if variable not in keys:
            # The prefix, which they all have, would make any two of them near.
            names = [known.removeprefix(PREFIX) for known in (*keys, TOKEN_VARIABLE)]
            nearest = PREFIX + _nearest(variable.removeprefix(PREFIX), names)
            raise BadConfig(
                f"the environment has {variable}, which is not known; the nearest is {nearest}"
            )
        key = keys[variable]
        values[key] = _checked(key, text, KINDS[key].from_text, f"the environment ({variable})")
    return _Source("environment", values, lambda key: f"the environment ({variable_of(key)})")


def _usual_file(*sources: _Source) -> Path | None:
    set_by = next((source for source in sources if "data" in source.values), None)
    data = MusivumConfig().data if set_by is None else _read("data", set_by)
    path = Path(str(data)).expanduser() / FILE_NAME
    return path if os.path.exists(path) else None


def _file(path: Path) -> _Source:
    values = _parse_toml(path)
    for key in values:
        if key not in KINDS:
            nearest = _nearest(key, KINDS)
            raise BadConfig(f"{path}: {key[:_SHOWN]!r} is not known; the nearest is {nearest}")
    return _Source("file", values, lambda _: str(path))


def _parse_toml(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as exc:
        raise BadConfig(f"cannot read {path}: {exc.strerror}") from exc
    if len(data) > MAX_FILE_BYTES:
        raise BadConfig(f"{path} is longer than {MAX_FILE_BYTES} bytes")
    try:
        text = data.decode()
        return tomllib.loads(text)
    except UnicodeDecodeError as exc:
        line = data[: exc.start].count(b"\n") + 1
        raise BadConfig(f"{path}: not UTF-8 (at line {line})") from None
    except ValueError as exc:
        told = str(exc).replace("at end of document", f"at line {len(text.splitlines())}, its end")
        raise BadConfig(f"{path}: {told}") from None
    except RecursionError:
        raise BadConfig(f"{path}: nested too deeply") from None


def _read(key: str, source: _Source) -> object:
    return _checked(
        key, source.values[key], KINDS[key].read, source.where(key), bare=source.name == "flag"
    )


def _checked(
    key: str, value: T, read: Callable[[T], object], where: str, *, bare: bool = False
) -> object:
    """What `read` makes of a value. `bare`: who typed a flag knows where it is."""
    try:
        return read(value)
    except (ValueError, OverflowError):
        shown = masked(repr(value))[:_SHOWN]
        raise BadConfig(f"{key} = {shown} in {where}: has to be {KINDS[key].told}") from None
    except InputError as exc:
        if bare:
            raise
        raise type(exc)(f"{key} in {where}: {exc}") from None


def _nearest(name: str, known: Iterable[str]) -> str:
    return difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
