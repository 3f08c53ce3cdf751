"""The sub-commands, and how the program ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from musivum.cli.accounts import appeal, credits_of, slash
from musivum.cli.config import config
from musivum.cli.federation import federation_app
from musivum.cli.ledger import ledger_app
from musivum.cli.manifest import manifest_app
from musivum.cli.mesh import peers, status
from musivum.cli.orders import rebalance, reputation
from musivum.cli.serve import serve
from tessella import __version__
from tessella.ending import run_program

PROGRAM = "musivum"

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="The mesh's bootstrap peer and tracker. It never receives a tensor.",
)
app.command()(serve)
app.command()(status)
app.command()(peers)
app.command()(rebalance)
app.add_typer(manifest_app, name="manifest")
app.command()(reputation)
app.command(name="credits")(credits_of)
app.command()(slash)
app.command()(appeal)
app.add_typer(ledger_app, name="ledger")
app.add_typer(federation_app, name="federation")
app.command()(config)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Every command prints its answer on stdout, and what went wrong in one line on stderr."""


def run(args: Sequence[str] | None = None) -> NoReturn:
    """The program: `args`, or the command line. Whatever goes wrong is one line on stderr."""
    run_program(app, PROGRAM, args, trace_bugs=False)
