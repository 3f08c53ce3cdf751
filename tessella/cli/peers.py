"""`tessella peers`: the nodes that a musivum lists, or that the swarm knows."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Annotated

import typer

from tessella.cli.chat_options import Asked, asked_globally, configured
from tessella.cli.discovery import NO_LIST, client_host, list_rows
from tessella.cli.options import BootstrapOption, MusivumOption
from tessella.cli.render import peer_document, peers_table
from tessella.cli.signals import Interrupts, run_command
from tessella.core.errors import BadConfig
from tessella.core.peers import PeerRow
from tessella.tables import console


def peers(
    ctx: typer.Context,
    musivum: MusivumOption = None,
    bootstrap: BootstrapOption = None,
    model: Annotated[str, typer.Option(help="Only the nodes of this model.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects.")] = False,
) -> None:
    """List the nodes of a mesh, by model and layer range."""
    way, _ = configured(ctx, Asked(musivum=musivum, bootstrap=bootstrap or ()))
    # The configured model is one to ask; the list is of all, unless a flag says otherwise.
    way = replace(way, model=model or asked_globally(ctx).model or "")
    if not (way.bootstrap or way.musivum or way.musivum_url):
        raise BadConfig(NO_LIST)
    rows: list[PeerRow] = []

    async def main(_: Interrupts) -> None:
        async with client_host() as host:
            rows.extend(await list_rows(host, way))

    run_command(main)
    if as_json:
        print(json.dumps([peer_document(row) for row in rows]))
    else:
        console(sys.stdout).print(peers_table(rows))
