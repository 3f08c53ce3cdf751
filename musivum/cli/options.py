"""Flags that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from musivum.settings import TOKEN_VARIABLE

DataOption = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="What outlives a restart; made if missing."),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The settings. [default: musivum.toml in --data]"),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where musivum answers HTTP. [default: the first `http` of the settings]",
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=f"The operator's token. [default: {TOKEN_VARIABLE}, or the file of the settings]",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One line of JSON on stdout.")]
