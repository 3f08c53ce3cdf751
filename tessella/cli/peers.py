"""`tessella peers`: the nodes that a musivum lists."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from tessella.cli.discovery import client_host
from tessella.cli.options import MUSIVUM_VARIABLE, MusivumOption
from tessella.cli.render import console, peer_document, peers_table
from tessella.cli.signals import Interrupts, run_command
from tessella.client import ask_peers
from tessella.core.addresses import PeerAddress, parse_peer
from tessella.core.errors import BadConfig
from tessella.core.peers import PeerRow


def peers(
    musivum: MusivumOption = None,
    model: Annotated[str, typer.Option(help="Only the nodes of this model.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects.")] = False,
) -> None:
    """List the nodes of a mesh, by model and layer range."""
    if not musivum:
        raise BadConfig(f"where is the mesh? --musivum MULTIADDR, or {MUSIVUM_VARIABLE}")
    rows: list[PeerRow] = []

    async def main(_: Interrupts) -> None:
        rows.extend(await list_peers(address, model))

    address = parse_peer(musivum)
    run_command(main)
    if as_json:
        print(json.dumps([peer_document(row) for row in rows]))
    else:
        console(sys.stdout).print(peers_table(rows))


async def list_peers(musivum: PeerAddress, model: str) -> list[PeerRow]:
    """The nodes of a model, or of all, in the order of the chain."""
    async with client_host() as host:
        rows = await ask_peers(host, musivum, model)
    return sorted(rows, key=lambda row: (row.model, row.layers, row.peer_id))
