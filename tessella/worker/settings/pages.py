"""Documents made from the keys of a node: the file with all of them, and the page about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from tessella.catalogue import DEFAULT_HOME, DEFAULT_MODEL
from tessella.settings.kinds import AUTO
from tessella.settings.pages import Entry, entries, field_docs, markdown_table, toml_file
from tessella.worker.settings.reading import FILE_IN_HOME, FILE_NAME, KEYS, TOKEN_VARIABLE
from tessella.worker.settings.tables import TABLES

_FILE_HEAD = """\
# The settings of a node. Whatever is left out, or commented out, is as here.
# An environment variable TESSELLA_<KEY> goes before this file, and a flag before both.
"""

_PAGE_HEAD = f"""\
# Settings of tessella-worker

A flag goes before an environment variable, that before `{FILE_NAME}`, and that before the
default, key by key. The file is `--config FILE`; without it `{FILE_NAME}` in the working
directory, or else `{FILE_IN_HOME}`. Started in a terminal without
a file and without what it needs, `tessella-worker` asks for that, and writes the file.
`tessella-worker config` prints every key with the value that holds and who set it,
`tessella-worker config --example` a file to begin with; this part is
`tessella-worker config --markdown`.

What is missing or wrong is one line that names the key and where it was set, and exit status 78. A
key that is not known, in the file or as a variable that begins with `TESSELLA_`, is an error that
names the nearest one; so is a key in another section than its own. In a variable the items of a
list stand between commas, and an empty variable is as if it were not set. Where a meaning speaks
of None, the key is left out. Relative paths begin at the working directory, `~` is the home
directory.

`{TOKEN_VARIABLE}` is no key but the token itself with which gated models are fetched. It is read
from the environment alone, and never shown.
"""
# What a key is as good as when it is left out, for who wants to begin with something.
_LEFT_OUT: dict[str, object] = {
    "orchestrator_url": "https://tracker1.example.org",
    "default_model": DEFAULT_MODEL,
    "vram_mb": 2048,
    "weights": "./model.gguf",
    "models_dir": DEFAULT_HOME / "models",
    "hub": "https://huggingface.co",
    "chat_template": "./chat_template.jinja",
    "public_ip": "203.0.113.7",
    "public_api_port": 8080,
    "public_p2p_port": 9080,
    "public_api_url": "https://node.example.org",
    "allow_private_addrs": False,
    "layer_range": "0:8",
    "device": AUTO,
    "dtype": AUTO,
    "max_input_tokens": 2048,
}


def keys() -> list[Entry]:
    """Every key, in the order of the file."""
    meanings: dict[str, str] = {}
    for table in TABLES.values():
        meanings |= field_docs(table)
    return entries(KEYS.by_name, meanings, _LEFT_OUT)


def node_file(values: Mapping[str, object]) -> str:
    """A `worker_config.toml` with these values by key, and every other key as it is by default."""
    return f"{_FILE_HEAD}\n{toml_file(keys(), values)}"


def markdown() -> str:
    """The second part of the page docs/config.md."""
    return _PAGE_HEAD + "".join(_parts())


def _parts() -> Iterator[str]:
    for section, inside in groupby(keys(), lambda entry: entry.key.section):
        title = f"`[{section}]`" if section else "At the top of the file"
        yield f"\n## {title}\n\n{markdown_table(inside)}"
