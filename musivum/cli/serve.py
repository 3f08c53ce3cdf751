"""`musivum serve`: from flags to a program that runs."""

from __future__ import annotations

import logging
import os
from enum import StrEnum
from typing import Annotated

import trio
import typer

from musivum.cli.options import ConfigOption, DataOption
from musivum.cli.program import Program, live
from musivum.config import DEFAULT_HTTP, DEFAULT_PORT
from musivum.settings import admin_token, load_settings
from tessella.keys import load_or_create_key


class LogLevel(StrEnum):
    """From which level on messages are written to stderr."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def serve(  # noqa: PLR0913 - typer makes a flag of each parameter
    http: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help=f"Answer HTTP here; may be repeated; `off` nowhere. [default: {DEFAULT_HTTP}]",
        ),
    ] = None,
    p2p: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help=f"Listen here; a multiaddr will do; may be repeated. [default: :{DEFAULT_PORT}]",
        ),
    ] = None,
    data: DataOption = None,
    config: ConfigOption = None,
    database_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where the mesh is kept; with postgresql:// a second musivum stands by. "
            "[default: a file in --data]",
        ),
    ] = None,
    bootstrap_only: Annotated[
        bool | None,
        typer.Option("--bootstrap-only", help="Only help peers of the swarm find each other."),
    ] = None,
    bootstrap: Annotated[
        list[str] | None,
        typer.Option(metavar="MULTIADDR", help="Another bootstrap peer; may be repeated."),
    ] = None,
    min_vram_mb: Annotated[
        int | None,
        typer.Option(metavar="MB", help="No node may claim less; 0 lets tiny models be split."),
    ] = None,
    announce: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MULTIADDR", help="Where others can dial it, behind a NAT; may be repeated."
        ),
    ] = None,
    allow_private_addrs: Annotated[
        bool | None,
        typer.Option(
            help="Nodes may have private addresses. [default: if musivum has no public one]",
        ),
    ] = None,
    no_dial_back: Annotated[
        bool | None,
        typer.Option("--no-dial-back", help="List nodes without having reached them."),
    ] = None,
    json_lines: Annotated[
        bool, typer.Option("--json", help="Say in JSON lines that it listens, or stands by.")
    ] = False,
    until_stdin_closes: Annotated[
        bool,
        typer.Option(
            "--until-stdin-closes", help="End with whoever holds the other end of standard input."
        ),
    ] = False,
    log_level: Annotated[LogLevel, typer.Option(help="What to write to stderr.")] = (
        LogLevel.WARNING
    ),
) -> None:
    """Run a musivum until it is told to stop (Ctrl-C, SIGTERM). Exit 0 then.

    Every flag that is left out is as MUSIVUM_<KEY> or musivum.toml say: see `musivum config`.
    """
    logging.basicConfig(level=log_level.value.upper(), format="%(levelname)s %(name)s: %(message)s")
    flags = {
        "http": http or None,
        "listen": p2p or None,
        "data": data,
        "database_url": database_url,
        "bootstrap_only": bootstrap_only,
        "bootstrap": bootstrap or None,
        "min_vram_mb": min_vram_mb,
        "announce": announce or None,
        "allow_private_addrs": allow_private_addrs,
        "dial_back": False if no_dial_back else None,
    }
    settings = load_settings(config, os.environ, flags)
    program = Program(
        config=settings,
        identity=load_or_create_key(settings.key_path),
        # A bootstrap peer takes no orders.
        token="" if settings.bootstrap_only else admin_token(settings, os.environ),
        json_lines=json_lines,
        until_stdin_closes=until_stdin_closes,
    )
    trio.run(live, program)
