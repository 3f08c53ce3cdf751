"""The settings of a node: read where they are set, asked for where nobody set them, and shown."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from tessella.cli.node_options import ConfigOption, Given
from tessella.cli.options import JsonOption
from tessella.core.errors import BadConfig, BadRequest
from tessella.tables import console, table
from tessella.worker.settings import (
    KEYS,
    NodeSettings,
    missing,
    read_node_settings,
    usual_file,
)
from tessella.worker.settings.pages import markdown, node_file
from tessella.worker.settings.reading import FILE_IN_HOME, TOKEN_VARIABLE, token_shown

NOTHING = "-"


def complete_settings(given: Given, environ: Mapping[str, str]) -> NodeSettings:
    """The settings of a node that is to start.

    Where there is no file, and a terminal, what is missing is asked for, and the file is written.
    Raises BadConfig for a file that is not there, naming all that is missing besides; what a file
    that is there lacks is left to whoever uses it.
    """
    path = given.config or usual_file()
    if path is not None and path.exists():
        return read_node_settings(path, environ, given.flags)
    settings = read_node_settings(None, environ, given.flags)
    lacking = missing(settings)
    if lacking and _is_terminal():
        # Questions, and whoever answers them, are for the first start alone.
        from tessella.cli.wizard import run_wizard

        place = path or FILE_IN_HOME.expanduser()
        run_wizard(place, environ)
        return read_node_settings(place, environ, given.flags)
    if path is not None:
        besides = f"; without it a node needs {'; '.join(lacking)}" if lacking else ""
        raise BadConfig(
            f"there is no file {path} (in a terminal `tessella-worker --config {path}` asks for "
            f"what it needs, and makes it){besides}"
        )
    return settings


def config(
    context: typer.Context,
    config: ConfigOption = None,
    print_example: Annotated[
        bool, typer.Option("--example", help="A worker_config.toml with every key.")
    ] = False,
    print_markdown: Annotated[
        bool, typer.Option("--markdown", help="The same as a page of Markdown.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print every key with its effective value, and whether a file or who else set it."""
    if print_example + print_markdown + as_json > 1:
        raise BadRequest("one of --example, --markdown and --json")
    if print_example or print_markdown:
        typer.echo(node_file({}) if print_example else markdown(), nl=False)
        return
    given = context.find_object(Given) or Given()
    path = config or given.config or usual_file()
    settings = read_node_settings(path, os.environ, given.flags)
    if as_json:
        print(json.dumps(_document(settings, os.environ)))
    else:
        _show(settings, os.environ)


def _document(settings: NodeSettings, environ: Mapping[str, str]) -> dict[str, object]:
    rows: dict[str, object] = {
        name: {"value": value, "source": settings.sources[name], "section": _section(name)}
        for name, value in settings.effective().items()
    }
    return rows | {TOKEN_VARIABLE: {"value": token_shown(environ), "source": _of_token(environ)}}


def _show(settings: NodeSettings, environ: Mapping[str, str]) -> None:
    rows = [
        (_section(name), name, _cell(value), settings.sources[name])
        for name, value in settings.effective().items()
    ]
    token = ("", TOKEN_VARIABLE, _cell(token_shown(environ)), _of_token(environ))
    title = f"file: {settings.file or 'none'}"
    headings = ("section", "key", "value", "source")
    console(sys.stdout).print(table(title, headings, [*rows, token]))


def _section(name: str) -> str:
    return KEYS.by_name[name].section


def _of_token(environ: Mapping[str, str]) -> str:
    return "default" if token_shown(environ) is None else "environment"


def _cell(value: object) -> object:
    match value:
        case None | "" | []:
            return NOTHING
        case bool():
            return str(value).lower()
        case list():
            return " ".join(map(str, value))
    return value


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
