"""`musivum ledger`: what was paid, and whether the whole of it holds, as anybody may check."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import trio
import typer

from musivum.cli.accounts import in_credits
from musivum.cli.asking import (
    Ask,
    Document,
    ask,
    converse,
    door_of,
    many,
    one,
    operator_door_of,
)
from musivum.cli.options import ConfigOption, DataOption, JsonOption, TokenFileOption, UrlOption
from musivum.cli.showing import moment, show_facts, show_json, show_rows
from musivum.settings import load_settings
from tessella.core.errors import BadConfig, BadFrame, BadLedger, TessellaError
from tessella.core.ledger import MAX_PAGE_ENTRIES, MINT, Head, Walk, open_head
from tessella.keys import load_key

LEDGER, HEAD, PROOF = "/ledger", "/ledger/head", "/ledger/proof"
_HEADINGS = ("entry", "kind", "when", "worker", "lines", "reason")

ledger_app = typer.Typer(no_args_is_help=True, help="See what was paid, and check that it holds.")


@ledger_app.command()
def show(
    limit: Annotated[int, typer.Option(metavar="N", help="How many entries.")] = 20,
    url: UrlOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the latest entries, the last one first."""
    door = operator_door_of(url, data, config, token_file)
    rows = many(ask(door, LEDGER, {"limit": str(limit)}))
    if as_json:
        show_json(rows)
    else:
        show_rows(f"entries: {len(rows)}", _HEADINGS, map(_cells, rows))


def _cells(row: Document) -> list[object]:
    lines = [
        f"{line.get('account')} {in_credits(line.get('micro')):+}"
        for line in many(row.get("lines") or [])
    ]
    worker = row.get("worker")
    return [
        row.get("sequence"),
        row.get("kind"),
        moment(row.get("at")),
        worker,
        ", ".join(lines),
        row.get("reason"),
    ]


@ledger_app.command()
def verify(
    peer: Annotated[
        str, typer.Option(metavar="PEER", help="Whose ledger it has to be, by peer id.")
    ] = "",
    offline: Annotated[
        bool, typer.Option("--offline", help="Check the database, while no musivum runs on it.")
    ] = False,
    url: UrlOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read the whole ledger from its first entry to its signed head, and check every rule.

    Exit 1 with the first index that is bad, if one is.
    """
    try:
        found = (
            _verify_offline(peer, data, config)
            if offline
            else converse(door_of(url, data, config), partial(_walk, peer=peer))
        )
    except TessellaError as exc:
        if as_json:
            index = exc.index if isinstance(exc, BadLedger) else None
            show_json({"ok": False, "code": exc.code, "index": index, "error": str(exc)})
        raise
    if as_json:
        show_json({"ok": True, **found})
    else:
        show_facts({**found, "head": "ok"})


async def _walk(ask: Ask, *, peer: str) -> Document:
    head = _head(one(await ask(HEAD, {})), peer)
    walk = Walk(head.origin)
    while walk.size < head.size:
        count = min(MAX_PAGE_ENTRIES, head.size - walk.size)
        page = one(await ask(PROOF, {"index": str(walk.size), "count": str(count)}))
        for payload in _payloads(page, walk.size):
            walk.feed(payload)
    walk.check_head(head)
    return _found(walk)


def _found(walk: Walk) -> Document:
    return {
        "musivum": walk.origin,
        "entries": walk.size,
        "accounts": len(walk.balances),
        "sum": sum(walk.balances.values()),
        "minted": in_credits(-walk.balances.get(MINT, 0)),
    }


def _head(body: Document, peer: str) -> Head:
    """The head by its signature alone. Raises BadFrame, BadSignature, and BadLedger for one of
    another musivum than `peer`, if that is said."""
    origin = str(body.get("origin"))
    if peer and origin != peer:
        raise BadLedger(f"the head is of the ledger of {origin[:64]}", 0)
    try:
        payload = b64decode(str(body.get("payload")), validate=True)
        signature = bytes.fromhex(str(body.get("signature")))
    except ValueError:
        raise BadFrame("a head that is none: is there a musivum at that URL?") from None
    return open_head(payload, signature, origin)


def _payloads(page: Document, index: int) -> Iterator[bytes]:
    entries = page.get("entries")
    if not isinstance(entries, list) or not entries:
        raise BadLedger("it is missing", index)
    for entry in entries:
        try:
            yield b64decode(str(entry), validate=True)
        except ValueError:
            raise BadLedger("it is not base64", index) from None
        index += 1


def _verify_offline(peer: str, data: str | None, config: Path | None) -> Document:
    """The same of the database itself, balances as well."""
    settings = load_settings(config, os.environ, {"data": data})
    identity = load_key(settings.key_path)
    if peer and identity.peer_id != peer:
        raise BadLedger(f"the database is of {identity.peer_id}", 0)

    async def main() -> Document:
        # The database's library takes a while to import, and nothing else here needs it.
        from musivum.ledger import Ledger
        from musivum.store import open_store

        async with open_store(settings.database, wait=_refuse) as store:
            ledger = Ledger(identity, store, lambda: 0.0)
            await ledger.check(whole=True)
            walk = Walk(identity.peer_id)
            while page := await ledger.page(since=walk.size):
                for payload in page:
                    walk.feed(payload)
            return _found(walk)

    return trio.run(main)


def _refuse() -> None:
    raise BadConfig("another musivum has the database: ask it, without --offline")
