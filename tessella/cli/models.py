"""`tessella models`: what is on this machine, and what can be fetched."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from tessella.catalogue import CATALOGUE, LocalModel, local_models, place_of
from tessella.cli.render import Document
from tessella.cli.signals import Interrupts, run_command
from tessella.tables import console, table

models_app = typer.Typer(no_args_is_help=True, help="Fetch models, and list them.")


@models_app.command()
def pull(
    name: Annotated[str, typer.Argument(help="A name of `models list`, or org/name of the hub.")],
) -> None:
    """Fetch a model; one that is here already is only checked. Prints where it lies."""
    from tessella.cli.pull import pull as pull_model

    async def main(_: Interrupts) -> None:
        model = await pull_model(name, lambda text: print(text, file=sys.stderr))
        print(model.path)

    run_command(main)


@models_app.command("list")
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects.")] = False,
) -> None:
    """List the models on this machine, and those that `pull` knows."""
    rows = documents(local_models())
    if as_json:
        print(json.dumps(rows))
        return
    cells = [
        (row["name"], "here" if row["here"] else "not here", _size(row["bytes"]), row["path"])
        for row in rows
    ]
    console(sys.stdout).print(table("", ("model", "", "size", "path"), cells))


def documents(here: list[LocalModel]) -> list[Document]:
    """A JSON object a model, by name: first what is here, then what is not."""
    found = [
        {"name": one.name, "here": True, "bytes": _bytes(one.path), "path": str(one.path)}
        for one in here
    ]
    names = {one.name for one in here}
    return found + [
        {"name": name, "here": False, "bytes": model.size, "path": str(place_of(name))}
        for name, model in sorted(CATALOGUE.items())
        if name not in names
    ]


def _bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files if file.is_file())


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
