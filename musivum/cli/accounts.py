"""`musivum credits`, `slash` and `appeal`: what identities own, lose and get back."""

from __future__ import annotations

from typing import Annotated

import typer

from musivum.cli.asking import Document, ask, many, one, operator_door_of, order
from musivum.cli.options import ConfigOption, DataOption, JsonOption, TokenFileOption, UrlOption
from musivum.cli.showing import moment, show_facts, show_json, show_records
from tessella.core.errors import BadRequest
from tessella.core.tiers import MICRO

CREDITS, SLASH, APPEAL = "/credits", "/slash", "/appeal"
_ACCOUNT = {
    "peer_id": "peer id",
    "credits": "credits",
    "tier": "tier",
    "earned": "earned",
    "earned_day": "in a day",
    "spent": "spent",
    "waiting": "waiting",
}
PeerArgument = Annotated[str, typer.Argument(metavar="PEER", help="A peer id.")]
ReasonOption = Annotated[str, typer.Option(metavar="TEXT", help="Stands in the ledger for good.")]


def credits_of(
    peer: Annotated[str, typer.Argument(metavar="[PEER]", help="A peer id.")] = "",
    everybody: Annotated[
        bool, typer.Option("--all", help="Of everybody, the richest first.")
    ] = False,
    url: UrlOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """What a peer owns, earned and spent, in credits."""
    if bool(peer) == everybody:
        raise BadRequest("whose credits? say PEER, or --all")
    query = {"all": "true"} if everybody else {"peer_id": peer}
    rows = many(ask(operator_door_of(url, data, config, token_file), CREDITS, query))
    if as_json:
        show_json(rows)
    else:
        show_records("accounts", _ACCOUNT, map(_account, rows))


def _account(row: Document) -> Document:
    """An account with all of its amounts in credits."""
    shown = {name: in_credits(row.get(f"micro_{name}")) for name in ("earned", "earned_day")}
    return {**row, **shown, "spent": in_credits(row.get("micro_spent"))}


def in_credits(micro: object) -> object:
    """Micro-credits as people read them."""
    return micro / MICRO if isinstance(micro, int) else None


def slash(  # noqa: PLR0913 - typer makes a flag of each parameter
    peer: PeerArgument,
    reason: ReasonOption,
    fine: Annotated[
        float | None,
        typer.Option(
            "--credits", metavar="N", help="What it loses. [default: as the rule of fines says]"
        ),
    ] = None,
    days: Annotated[
        float | None, typer.Option(metavar="N", help="For how long it is let in nowhere.")
    ] = None,
    url: UrlOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take credits from a peer that was caught, and let it in nowhere for some days."""
    body: Document = {"peer_id": peer, "reason": reason}
    body |= {
        name: value for name, value in (("credits", fine), ("days", days)) if value is not None
    }
    _show(one(order(operator_door_of(url, data, config, token_file), SLASH, body)), as_json=as_json)


def appeal(
    peer: PeerArgument,
    reason: ReasonOption,
    url: UrlOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a peer back all that was taken from it, and let it in again."""
    body = {"peer_id": peer, "reason": reason}
    done = one(order(operator_door_of(url, data, config, token_file), APPEAL, body))
    _show(done, as_json=as_json)


def _show(done: Document, *, as_json: bool) -> None:
    if as_json:
        show_json(done)
        return
    show_facts(
        {
            "peer id": done.get("peer_id"),
            "moved": in_credits(done.get("micro")),
            "balance": in_credits(done.get("balance")),
            "barred until": moment(done.get("until")),
            "entry": done.get("sequence"),
        }
    )
