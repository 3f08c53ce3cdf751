"""`musivum federation`: the musivums whose credits count here, and how it goes with them."""

from __future__ import annotations

from typing import Annotated

import typer

from musivum.cli.asking import ask, door_of, many, one, operator_door_of, order
from musivum.cli.options import ConfigOption, DataOption, JsonOption, TokenFileOption, UrlOption
from musivum.cli.showing import show_facts, show_json, show_records

STATUS, FORGET = "/federation/status", "/federation/forget"
_COLUMNS = {
    "peer_id": "peer id",
    "url": "url",
    "state": "state",
    "size": "entries",
    "behind": "behind",
    "slashes": "slashes",
    "reversals": "reversals",
    "error": "error",
}

federation_app = typer.Typer(
    no_args_is_help=True, help="The musivums that are listed in `federation`."
)


@federation_app.command("status")
def status(
    url: UrlOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """How far the ledger of each is here, and which one told two histories."""
    answer = one(ask(door_of(url, data, config), STATUS))
    if as_json:
        show_json(answer)
    else:
        show_records("partners", _COLUMNS, many(answer.get("partners")))


@federation_app.command("forget")
def forget(
    peer: Annotated[str, typer.Argument(metavar="PEER", help="A peer id.")],
    url: UrlOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Undo all that was taken from a musivum, and read its ledger anew if it is still listed."""
    answer = one(order(operator_door_of(url, data, config, token_file), FORGET, {"peer_id": peer}))
    if as_json:
        show_json(answer)
    else:
        show_facts({"forgotten": answer.get("peer_id"), "entries": answer.get("entries")})
