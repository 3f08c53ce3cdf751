"""From flags, environment and file to one configuration, and where each value came from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from musivum.config import PEERS_NAME, MusivumConfig
from musivum.settings.kinds import OWN_KINDS
from musivum.settings.token import TOKEN_VARIABLE
from tessella.settings.fold import fold
from tessella.settings.keys import Keys, keys_of
from tessella.settings.sources import (
    Source,
    environment_source,
    file_source,
    flags_source,
    read_value,
)

FILE_NAME = "musivum.toml"
PREFIX = "MUSIVUM_"
# 16384 peers that are allowed are 1 MiB of peer ids.
MAX_FILE_BYTES = 4 * 1024 * 1024

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

KEYS = Keys(
    keys_of(
        MusivumConfig,
        PREFIX,
        kinds=OWN_KINDS,
        flags={name: (flag,) for name, flag in FLAGS.items()},
    ),
    prefix=PREFIX,
    others=(TOKEN_VARIABLE,),
)
"""Every key, in the order of `MusivumConfig`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A configuration, and who set what."""

    config: MusivumConfig
    sources: Mapping[str, str]
    """For every key: `default`, `file`, `environment` or `flag`."""
    file: Path | None
    """The file that was read."""


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
    Raises BadConfig that names key, value and source (of a flag also BadAddress): for what is not
    known, of another type or out of its rule, and for a file that cannot be read.
    """
    given = flags_source(KEYS, flags)
    environment = environment_source(KEYS, environ)
    found = file or _usual_file(given, environment)
    sources = [file_source(KEYS, found, MAX_FILE_BYTES)] if found is not None else []
    folded = fold(KEYS, (*sources, environment, given))
    config = MusivumConfig(**folded.values)
    if "snapshot" not in folded.values:
        config = replace(config, snapshot=config.data.expanduser() / PEERS_NAME)
    return Settings(config, folded.sources, found)


def variable_of(key: str) -> str:
    """The environment variable of a key."""
    return KEYS.by_name[key].variables[0]


def _usual_file(*sources: Source) -> Path | None:
    set_by = next((source for source in sources if "data" in source.values), None)
    data = MusivumConfig().data if set_by is None else read_value(KEYS.by_name["data"], set_by)
    path = Path(str(data)).expanduser() / FILE_NAME
    return path if os.path.exists(path) else None
