"""`tessella-worker keys`: the identity of a node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tessella.core.errors import BadKey
from tessella.keys import create_key, load_key
from tessella.worker.settings.tables import DEFAULT_KEY as DEFAULT_KEY

ExistingKeyOption = Annotated[Path, typer.Option("--key", metavar="PATH")]

keys_app = typer.Typer(no_args_is_help=True, help="Show this node's identity, or make one.")


@keys_app.command()
def show(key: ExistingKeyOption = DEFAULT_KEY) -> None:
    """Print the peer id."""
    path = key.expanduser()
    try:
        print(load_key(path).peer_id)
    except FileNotFoundError:
        raise BadKey(f"there is no key {path}: `tessella-worker keys new` makes one") from None


@keys_app.command()
def new(key: ExistingKeyOption = DEFAULT_KEY) -> None:
    """Make a key and print its peer id. One that is there is never overwritten."""
    path = key.expanduser()
    try:
        print(create_key(path).peer_id)
    except FileExistsError:
        raise BadKey(f"{path} is there already, and is not overwritten") from None
