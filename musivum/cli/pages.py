"""Documents made from the settings: an example of musivum.toml, and the page that explains it."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

from musivum.config import DEFAULT_DATA, KEY_NAME, PEERS_NAME, TOKEN_NAME, MusivumConfig
from musivum.settings import FLAGS, TOKEN_VARIABLE, variable_of
from musivum.settings.kinds import kind_of, plain

COLUMNS = 96

_EXAMPLE_HEAD = """\
# The settings of a musivum: every key, and its default. Whatever is left out is as here.
# An environment variable MUSIVUM_<KEY> goes before this file, and a flag before both.
"""

_PAGE_HEAD = f"""\
# Settings of musivum

A flag goes before an environment variable, that before `musivum.toml`, and that before the
default, key by key. The file is `--config FILE`, or `musivum.toml` in the data directory.
`musivum config` prints every key with the value that holds and who set it,
`musivum config --example` a file to begin with; this page is `musivum config --markdown`.

A key that is not known, in the file or as a variable that begins with `MUSIVUM_`, is an error that
names the nearest one. (Kubernetes makes such variables for a service of that name: set
`enableServiceLinks: false`.) In a variable the items of a list stand between commas, and an empty
variable is as if it were not set. Where a meaning speaks of None, the key is left out. Relative
paths begin at the working directory, `~` is the home directory.

`{TOKEN_VARIABLE}` is no key but the operator's token itself, of at least 32 characters. Without it
the token is read from `admin_token_file`, which is made at the first start: 256 random bits that
only their owner may read. It goes over the wire as it is, so from another machine use an
`https://` URL or a tunnel.

"""
# What a key is as good as when it is left out, for who wants to begin with something.
_LEFT_OUT: dict[str, object] = {
    "key": DEFAULT_DATA / KEY_NAME,
    "admin_token_file": DEFAULT_DATA / TOKEN_NAME,
    "snapshot": DEFAULT_DATA / PEERS_NAME,
    "allow": (),
    "allow_private_addrs": False,
}
_HEADINGS = ("key", "type", "default", "meaning, unit and rule", "variable", "flag")


@dataclass(frozen=True, slots=True)
class Key:
    """One key as documents show it."""

    name: str
    meaning: str
    """Its docstring: what it is, its unit and its rule."""
    kind: str
    default: str
    """As TOML has it."""
    is_left_out: bool
    """Whether the default is no value at all; then `default` is one that says about the same."""


def keys() -> Iterator[Key]:
    """Every key, in the order of `MusivumConfig`."""
    meanings = field_docs(MusivumConfig)
    for field in fields(MusivumConfig):
        is_left_out = field.default is None
        default = toml(_LEFT_OUT[field.name] if is_left_out else field.default)
        told = kind_of(field).told
        yield Key(field.name, meanings[field.name], told, default, is_left_out)


def field_docs(documented: type) -> dict[str, str]:
    """The docstrings below the fields of a class, each on one line."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(documented))).body
    found = {}
    statements = body.body if isinstance(body, ast.ClassDef) else []
    for field, doc in pairwise(statements):
        match field, doc:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                found[name] = " ".join(text.split())
    return found


def toml(value: object) -> str:
    """A value as TOML writes it: what JSON writes, with the letters as they are."""
    return json.dumps(plain(value), ensure_ascii=False)


def example() -> str:
    """A musivum.toml with every key, what it means, and its default."""
    parts = [_EXAMPLE_HEAD]
    for key in keys():
        lines = textwrap.wrap(f"{key.meaning} ({key.kind})", COLUMNS)
        comment = "".join(f"# {line}\n" for line in lines)
        parts.append(f"{comment}{'# ' if key.is_left_out else ''}{key.name} = {key.default}\n")
    return "\n".join(parts)


def markdown() -> str:
    """The page docs/config.md."""
    lines = [_row(_HEADINGS), _row(["---"] * len(_HEADINGS))]
    lines += [_row(_cells(key)) for key in keys()]
    return _PAGE_HEAD + "".join(f"{line}\n" for line in lines)


def _cells(key: Key) -> tuple[str, ...]:
    default = "left out" if key.is_left_out else f"`{key.default}`"
    if key.name == "snapshot":
        default = f"`{PEERS_NAME}` in `data`"
    flag = f"`{FLAGS[key.name]}`" if key.name in FLAGS else ""
    return (f"`{key.name}`", key.kind, default, key.meaning, f"`{variable_of(key.name)}`", flag)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
