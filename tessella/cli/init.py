"""`tessella init`: the client's configuration, and a key of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tessella.cli.chat_options import (
    ApiUrlOption,
    ConfigOption,
    ModelOption,
    TokensOption,
    WarmthOption,
    asked_globally,
)
from tessella.cli.client_config import DEFAULT_CONFIG, KEY_NAME, config_text
from tessella.cli.options import BootstrapOption, MusivumOption, split_addrs
from tessella.cli.private_file import replace_file
from tessella.core.errors import BadConfig
from tessella.keys import load_or_create_key


def init(  # noqa: PLR0913 - typer makes a flag of each parameter
    ctx: typer.Context,
    api_url: ApiUrlOption = None,
    musivum: MusivumOption = None,
    bootstrap: BootstrapOption = None,
    model: ModelOption = None,
    max_tokens: TokensOption = None,
    temperature: WarmthOption = None,
    config: ConfigOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a configuration that is there.")
    ] = False,
) -> None:
    """Write the client's configuration, and its key beside it if there is none.

    What is not given stands in the file as an example. A key is never written over.
    """
    asked = asked_globally(ctx)
    path = (config or asked.config or DEFAULT_CONFIG).expanduser()
    text = config_text(
        {
            "api_url": api_url or asked.api_url,
            "peers": split_addrs(bootstrap) if bootstrap else None,
            "musivum": musivum,
            "model": model or asked.model,
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
    )
    for line in write_client(path, text, force=force):
        print(line)


def write_client(path: Path, text: str, *, force: bool) -> list[str]:
    """Write the configuration and make the key; a line about each.

    Raises BadConfig for a configuration that is there, unless `force`, and BadKey.
    """
    if not force and path.exists():
        raise BadConfig(f"{path} exists: --force writes over it")
    key = path.parent / KEY_NAME
    had_key = key.exists()
    identity = load_or_create_key(key)
    replace_file(path, "the configuration", text)
    kept = "kept " if had_key else "wrote"
    return [f"wrote {path}", f"{kept} {key} ({identity.peer_id})"]
