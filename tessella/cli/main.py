"""The command `tessella`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

import tessella
from tessella.cli.chat import chat
from tessella.cli.chat_options import ApiUrlOption, Asked, ConfigOption, ModelOption
from tessella.cli.fim import fim
from tessella.cli.init import init
from tessella.cli.models import models_app
from tessella.cli.peers import peers
from tessella.cli.up import up
from tessella.ending import run_program

PROGRAM = "tessella"

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Run one language model on many machines, each holding a range of its layers.",
)
app.command()(up)
app.command()(chat)
app.command()(fim)
app.command()(init)
app.command()(peers)
app.add_typer(models_app, name="models")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"{PROGRAM} {tessella.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    ctx: typer.Context,
    api_url: ApiUrlOption = None,
    model: ModelOption = None,
    config: ConfigOption = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Run one language model on many machines, each holding a range of its layers.

    Every command prints its answer on stdout and its story on stderr.
    """
    ctx.obj = Asked(api_url=api_url, model=model, config=config)


def run(args: Sequence[str] | None = None) -> NoReturn:
    """The program: `args`, or the command line."""
    # An error is one line, and what else is known of it is in that line: without a handler of our
    # own, warnings of the floors below would go to stderr beside it.
    logging.getLogger().addHandler(logging.NullHandler())
    run_program(app, PROGRAM, args)


if __name__ == "__main__":
    run()
