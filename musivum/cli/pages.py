"""Documents made from the settings: an example of musivum.toml, and the page that explains it."""

from __future__ import annotations

from musivum.config import DEFAULT_DATA, KEY_NAME, PEERS_NAME, TOKEN_NAME, MusivumConfig
from musivum.settings import KEYS, TOKEN_VARIABLE
from tessella.settings.pages import Entry, entries, field_docs, markdown_table, toml_file

_EXAMPLE_HEAD = """\
# The settings of a musivum: every key, and its default. Whatever is left out is as here.
# An environment variable MUSIVUM_<KEY> goes before this file, and a flag before both.
"""

_PAGE_HEAD = f"""\
# Settings of musivum

A flag goes before an environment variable, that before `musivum.toml`, and that before the
default, key by key. The file is `--config FILE`, or `musivum.toml` in the data directory.
`musivum config` prints every key with the value that holds and who set it,
`musivum config --example` a file to begin with; this part is `musivum config --markdown`.

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


def keys() -> list[Entry]:
    """Every key, in the order of `MusivumConfig`."""
    return entries(
        KEYS.by_name,
        field_docs(MusivumConfig),
        _LEFT_OUT,
        {"snapshot": f"`{PEERS_NAME}` in `data`"},
    )


def example() -> str:
    """A musivum.toml with every key, what it means, and its default."""
    return f"{_EXAMPLE_HEAD}\n{toml_file(keys())}"


def markdown() -> str:
    """The first part of the page docs/config.md."""
    return _PAGE_HEAD + markdown_table(keys())
