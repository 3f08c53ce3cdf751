"""The client's configuration: which mesh to ask, and how, unless flags say otherwise.

# ~/.config/tessella/client.toml
musivum = "/ip4/203.0.113.7/tcp/4001/p2p/12D3KooW…"
model = "Qwen/Qwen2.5-0.5B-Instruct"
max_tokens = 512
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tessella.cli.discovery import Way, api_base, by_musivum, parse_musivum
from tessella.core.addresses import PeerAddress
from tessella.core.identity import Identity
from tessella.core.sampling import Sampling
from tessella.keys import load_key
from tessella.settings.fold import fold
from tessella.settings.keys import Keys, keys_of
from tessella.settings.kinds import Kind, read_number, read_text, read_whole
from tessella.settings.pages import entries, field_docs, toml_file
from tessella.settings.sources import file_source, flags_source, read_value

DEFAULT_CONFIG = Path("~/.config/tessella/client.toml")
KEY_NAME = "client.key"
"""Beside the configuration."""
MAX_CONFIG_FILE = 64 * 1024
"""Bytes. A hundred peers are under 10 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What the file may hold."""

    api_url: str | None = None
    """The HTTP API of a node to ask."""
    peers: tuple[PeerAddress, ...] = ()
    """Peers of the swarm, to find the others through."""
    musivum: PeerAddress | str | None = None
    """The mesh's musivum, which lists its nodes and gives tickets."""
    model: str | None = None
    """The model to ask for where a mesh serves several."""
    max_tokens: int = Sampling().max_tokens
    """Tokens of an answer, at most."""
    temperature: float = Sampling().temperature
    """How much is left to chance: 0 takes the most probable token."""

    def way(self) -> Way:
        """How to find a node; it may be empty."""
        way = Way(api_url=self.api_url or "", bootstrap=self.peers, model=self.model or "")
        return by_musivum(way, self.musivum)


KEYS = Keys(
    keys_of(
        ClientConfig,
        "TESSELLA_CLIENT_",
        kinds={
            "api_url": Kind("a URL", lambda value: api_base(read_text(value))),
            "musivum": Kind(
                "a multiaddr with /p2p/ID, or a URL",
                lambda value: parse_musivum(read_text(value)),
            ),
            "max_tokens": Kind(
                "a whole number", lambda value: Sampling(max_tokens=read_whole(value)).max_tokens
            ),
            "temperature": Kind(
                "a number", lambda value: Sampling(temperature=read_number(value)).temperature
            ),
        },
        flags={
            "api_url": ("--api-url",),
            "peers": ("--bootstrap",),
            "musivum": ("--musivum",),
            "model": ("--model",),
            "max_tokens": ("--max-tokens",),
            "temperature": ("--temperature",),
        },
    ),
    prefix="TESSELLA_CLIENT_",
)
_PEER = "/ip4/203.0.113.7/tcp/4001/p2p/12D3KooW..."
_EXAMPLES = {"api_url": "http://127.0.0.1:8080", "musivum": _PEER, "model": "org/name"}


def read_config(path: Path | None) -> ClientConfig:
    """The configuration in a file; that of the usual place, which may not exist, for None.

    Raises BadConfig that names the file, and the key in it.
    """
    where = (path or DEFAULT_CONFIG).expanduser()
    if path is None and not where.exists():
        return ClientConfig()
    return ClientConfig(**fold(KEYS, [file_source(KEYS, where, MAX_CONFIG_FILE)]).values)


def client_key(path: Path | None) -> Identity | None:
    """The key beside a configuration, that of the usual place for None; None where there is none.

    Raises BadKey for one that cannot be used.
    """
    try:
        return load_key((path or DEFAULT_CONFIG).expanduser().parent / KEY_NAME)
    except FileNotFoundError:
        return None


def config_text(flags: Mapping[str, object]) -> str:
    """A configuration file with what was given as flags; the other keys stand there as they are.

    Values are by key, as TOML has them; None was not given. Raises InputError that names the flag.
    """
    given = flags_source(KEYS, flags)
    for name in given.values:
        read_value(KEYS.by_name[name], given)
    return toml_file(entries(KEYS.by_name, field_docs(ClientConfig), _EXAMPLES), given.values)
