"""`musivum rebalance` and `musivum reputation`: what only the operator may ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from musivum.cli.asking import ask, many, one, operator_door_of, order
from musivum.cli.options import ConfigOption, DataOption, JsonOption, TokenFileOption, UrlOption
from musivum.cli.showing import show_json, show_records, show_rows, span
from tessella.core.errors import BadRequest

REBALANCE, REPUTATION = "/rebalance", "/reputation"
_COUNTERS = {
    "peer_id": "peer id",
    "score": "score",
    "joins": "joins",
    "offline": "offline",
    "accused": "accused",
    "accused_confirmed": "confirmed",
    "reports_made": "reports",
    "reports_confirmed": "confirmed",
    "audits_passed": "audits",
    "audits_rejected": "rejected",
    "slashes": "slashes",
}


def rebalance(
    url: UrlOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Begin to move nodes to other layers where that is worth it; further moves follow alone."""
    answer = one(order(operator_door_of(url, data, config, token_file), REBALANCE, {}))
    if as_json:
        show_json(answer)
        return
    moves = many(answer.get("moves"))
    rows = [
        (move.get("peer_id"), span(move.get("old")), span(move.get("new")), move.get("reason"))
        for move in moves
    ]
    show_rows(f"moves: {len(rows)}", ("peer id", "old", "new", "reason") if rows else ("",), rows)


def reputation(
    peer: Annotated[str, typer.Argument(metavar="[PEER]", help="A peer id.")] = "",
    everybody: Annotated[bool, typer.Option("--all", help="Of every peer that is known.")] = False,
    url: UrlOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """What became of a peer: how often it joined, went away and failed others."""
    if bool(peer) == everybody:
        raise BadRequest("whose reputation? say PEER, or --all")
    query = {"all": "true"} if everybody else {"peer_id": peer}
    rows = many(ask(operator_door_of(url, data, config, token_file), REPUTATION, query))
    if as_json:
        show_json(rows)
    else:
        show_records("peers", _COUNTERS, rows)
