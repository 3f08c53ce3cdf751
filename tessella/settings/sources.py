"""Where an operator sets something: a flag, an environment variable, or a file in TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tessella.core.errors import BadConfig
from tessella.settings.checking import checked
from tessella.settings.keys import Key, Keys

DEFAULT, FILE, ENVIRONMENT, FLAG = "default", "file", "environment", "flag"
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Source:
    """Values of one place, as TOML would give them."""

    name: str
    values: Mapping[str, object]
    """By key."""
    where: Callable[[str], str]
    """Where a key was set, for the end of a sentence."""


def flags_source(keys: Keys, flags: Mapping[str, object]) -> Source:
    """Values by key as TOML would have them; None is a flag that was not given."""
    values = {name: value for name, value in flags.items() if value is not None}
    return Source(FLAG, values, lambda name: " or ".join(keys.by_name[name].flags))


def environment_source(keys: Keys, environ: Mapping[str, str]) -> Source:
    """What the variables say; one without text is as if it were not set.

    Raises BadConfig for one with the prefix that is not known, one that is not of its kind, and
    two that say the same key differently.
    """
    values: dict[str, object] = {}
    said_by: dict[str, str] = {}
    for variable, text in _ours(keys, environ):
        key = keys.by_variable[variable]
        where = _in_environment(variable)
        value = checked(key, text, key.kind.from_text, where)
        if key.name in values and values[key.name] != value:
            raise BadConfig(f"{said_by[key.name]} and {variable} set {key.name}, each its own way")
        values[key.name], said_by[key.name] = value, variable
    return Source(ENVIRONMENT, values, lambda name: _in_environment(said_by[name]))


def _ours(keys: Keys, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for variable, text in sorted(environ.items()):
        if variable in keys.others or not text.strip():
            continue
        if variable in keys.by_variable:
            yield variable, text
        elif variable.startswith(keys.prefix):
            raise BadConfig(
                f"the environment has {variable}, which is not known; "
                f"the nearest is {keys.nearest_variable(variable)}"
            )


def _in_environment(variable: str) -> str:
    return f"the environment ({variable})"


def file_source(keys: Keys, path: Path, most_bytes: int) -> Source:
    """What a file says.

    Raises BadConfig that names the file: for one that cannot be read, is longer than `most_bytes`
    or no TOML, and for keys that are not known or stand in another section than their own.
    """
    values = {}
    for name, section, value in _flat(keys, path, read_toml(path, most_bytes)):
        values[name] = value
        _check_place(keys, path, name, section)
    return Source(FILE, values, lambda _: str(path))


def _flat(
    keys: Keys, path: Path, document: Mapping[str, object]
) -> Iterator[tuple[str, str, object]]:
    """Name, section and value of every key."""
    for name, value in document.items():
        if name in keys.sections:
            if not isinstance(value, dict):
                raise BadConfig(f"{path}: {name} is a section: [{name}]")
            for inner, of_inner in value.items():
                yield inner, name, of_inner
        elif isinstance(value, dict) and name not in keys.by_name and keys.sections:
            known = ", ".join(f"[{section}]" for section in keys.sections)
            raise BadConfig(f"{path}: [{name[:_SHOWN]}] is no section; there are {known}")
        else:
            yield name, "", value


def _check_place(keys: Keys, path: Path, name: str, section: str) -> None:
    key = keys.by_name.get(name)
    shown = repr(name[:_SHOWN])
    if key is None:
        if name.upper() in keys.others:
            raise BadConfig(f"{path}: {shown} is read from the environment alone: {name.upper()}")
        raise BadConfig(f"{path}: {shown} is not known; the nearest is {keys.nearest(name)}")
    if key.section != section:
        stands = f"in [{section}]" if section else "at the top"
        raise BadConfig(f"{path}: {name} stands {stands}, and belongs {key.place}")


def read_toml(path: Path, most_bytes: int) -> dict[str, object]:
    """A document. Raises BadConfig that names the file, and the line if it has one."""
    data = _read_bytes(path, most_bytes)
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


def _read_bytes(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as exc:
        raise BadConfig(f"cannot read {path}: {exc.strerror}") from exc
    if len(data) > most:
        raise BadConfig(f"{path} is longer than {most} bytes")
    return data


def read_value(key: Key, source: Source) -> object:
    """A key's value as the program takes it. Raises BadConfig that names key, value and source."""
    value = source.values[key.name]
    return checked(key, value, key.kind.read, source.where(key.name), is_typed=source.name == FLAG)
