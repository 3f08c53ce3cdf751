"""`musivum config`: every key, its value and who set it; and the documents about them."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from musivum.cli.options import ConfigOption, DataOption, JsonOption
from musivum.cli.pages import example, markdown
from musivum.cli.showing import show_json, show_rows
from musivum.config import MusivumConfig
from musivum.settings import Settings, read_settings
from tessella.core.errors import BadRequest
from tessella.settings.kinds import plain
from tessella.settings.masking import masked


def config(
    data: DataOption = None,
    config: ConfigOption = None,
    print_example: Annotated[
        bool, typer.Option("--example", help="A musivum.toml with every key and its default.")
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
        typer.echo(example() if print_example else markdown(), nl=False)
        return
    settings = read_settings(config, os.environ, {"data": data})
    values = effective(settings.config)
    if as_json:
        rows = {
            key: {"value": values[key], "source": settings.sources[key]} for key in settings.sources
        }
        show_json(rows)
    else:
        _show(settings, values)


def _show(settings: Settings, values: dict[str, object]) -> None:
    rows = [(key, _cell(values[key]), source) for key, source in settings.sources.items()]
    file = f"file: {settings.file}" if settings.file else "file: none"
    show_rows(file, ("key", "value", "source"), rows)


def _cell(value: object) -> object:
    match value:
        case bool():
            return str(value).lower()
        case list():
            return " ".join(map(str, value))
    return value


def effective(config: MusivumConfig) -> dict[str, object]:
    """Every key with the value that holds, as JSON has it; without any password."""
    values = {key: getattr(config, key) for key in MusivumConfig.__dataclass_fields__}
    values |= {
        "data": config.data.expanduser(),
        "key": config.key_path,
        "admin_token_file": config.token_path,
        "database_url": masked(config.database),
        "allow_private_addrs": config.allow_private,
    }
    return {key: plain(value) for key, value in values.items()}
