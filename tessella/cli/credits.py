"""`tessella-worker credits`: what a node served, what it was paid, and what it owns."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import trio
import typer

from tessella.cli import node_options as flags
from tessella.cli.discovery import client_host
from tessella.cli.node_options import Given
from tessella.cli.options import JsonOption
from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadFrame, BadKey, TessellaError
from tessella.core.identity import Identity
from tessella.core.messages import AskCredits, Document, Message
from tessella.core.text import one_line
from tessella.core.tiers import MICRO, Tier
from tessella.keys import load_key
from tessella.worker.proofs.schema import book_path
from tessella.worker.proofs.totals import Settled, Summary, read_summary
from tessella.worker.settings import NodeSettings, read_node_settings, usual_file

# Of settled proofs, as many as a glance takes in.
LAST = 10

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Owned:
    """What musivum says of the account, or why it says nothing."""

    account: Mapping[str, Any] | None = None
    why_not: str = ""


def show_credits(
    context: typer.Context,
    config: flags.ConfigOption = None,
    orchestrator_url: flags.OrchestratorOption = None,
    keypair_path: flags.KeypairOption = None,
    as_json: JsonOption = False,
) -> None:
    """What this node served and was paid, by its own book, and what it owns, by musivum's.

    The node may be running, and musivum away.
    """
    given = context.find_object(Given) or Given()
    said: Json = {"keypair_path": keypair_path, "orchestrator_url": orchestrator_url or None}
    told = {name: value for name, value in said.items() if value is not None}
    path = config or given.config or usual_file()
    settings = read_node_settings(path, os.environ, {**given.flags, **told})
    key = settings.mesh.keypair_path.expanduser()
    identity = _identity(key)
    summary = _summary(book_path(key))
    owned = trio.run(_ask, settings, identity)
    document = credits_document(identity, owned, summary)
    print(json.dumps(document) if as_json else "\n".join(credits_lines(document)))


def _identity(key: Path) -> Identity:
    try:
        return load_key(key)
    except FileNotFoundError:
        raise BadKey(f"there is no key {key}: the key of the node is needed") from None


def _summary(path: Path) -> Summary | None:
    try:
        return read_summary(path, LAST)
    except FileNotFoundError:
        return None


async def _ask(settings: NodeSettings, identity: Identity) -> Owned:
    musivum = settings.mesh.orchestrator_url
    if not musivum:
        return Owned(why_not="no musivum is configured")
    try:
        if isinstance(musivum, str):
            answer = await _by_url(musivum, identity)
        else:
            answer = await _by_address(musivum, identity)
        return Owned(_account(answer))
    except TessellaError as exc:
        return Owned(why_not=f"{exc.code}: {exc}")


async def _by_url(url: str, identity: Identity) -> Message:
    # It takes a fifth of a second to import, and the help of a command does not need it.
    from tessella.web.client import open_client
    from tessella.worker.musivum_http import HttpMusivum, find_musivum

    async with open_client() as client:
        found = await find_musivum(client, url)
        musivum = HttpMusivum(
            client=client, url=url, peer_id=found.peer_id, identity=identity, clock=time.time
        )
        return await musivum.ledger(AskCredits())


async def _by_address(musivums: tuple[PeerAddress, ...], identity: Identity) -> Message:
    from tessella.worker.tracker import Tracker

    async with client_host(identity) as host:
        tracker = Tracker(host, identity, musivums)
        try:
            return await tracker.ledger_call(AskCredits())
        finally:
            await tracker.aclose()


def _account(answer: Message) -> Mapping[str, Any]:
    if not isinstance(answer, Document):
        raise BadFrame(f"{type(answer).__name__} in place of an account")
    try:
        account = json.loads(answer.document)
        micro, tier = account["micro"], Tier(account["tier"].lower())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise BadFrame(f"what musivum says is no account: {exc!r}") from exc
    if type(micro) is not int:
        raise BadFrame("what musivum says is no account: its balance is no whole number")
    return {**account, "credits": micro / MICRO, "tier": tier.value}


def credits_document(identity: Identity, owned: Owned, summary: Summary | None) -> Json:
    """All of it, for a program."""
    return {
        "peer_id": identity.peer_id,
        "account": owned.account,
        "musivum": owned.why_not or "answered",
        "book": None if summary is None else _book(summary),
    }


def _book(summary: Summary) -> Json:
    totals = summary.totals
    return {
        "sessions": totals.sessions,
        "layer_positions": totals.layer_positions,
        "unsent": summary.unsent,
        "waiting": summary.waiting,
        "paid": totals.paid,
        "credits": totals.credits,
        "refused": totals.refused,
        "reasons": summary.reasons,
        "last": [_settled(each) for each in summary.last],
    }


def _settled(proof: Settled) -> Json:
    return {
        "settled_at": proof.settled_at,
        "request_id": proof.request_id.hex(),
        "layer_positions": proof.layer_positions,
        "state": proof.state,
        "credits": proof.micro / MICRO,
        "code": proof.code,
        "text": proof.text,
    }


def credits_lines(document: Json) -> list[str]:
    """The same for people, a fact a line."""
    facts = [("peer", document["peer_id"]), ("balance", _balance(document))]
    if held := (document["account"] or {}).get("held_against"):
        facts.append(("audits", held))
    book = document["book"]
    if book is None:
        facts.append(("served", "nothing for a ticket yet"))
        return _aligned(facts)
    reasons = ", ".join(f"{code} {count}" for code, count in book["reasons"].items())
    facts += [
        ("served", f"{book['sessions']} sessions, {book['layer_positions']} layers x positions"),
        ("unsent", f"{book['unsent']} proofs"),
        ("waiting", f"{book['waiting']} proofs, for those of others in the chain"),
        ("paid", f"{book['paid']} proofs, {book['credits']:.3f} credits"),
        ("refused", f"{book['refused']} proofs" + (f": {reasons}" if reasons else "")),
    ]
    return _aligned(facts) + [_line(each) for each in book["last"]]


def _balance(document: Json) -> str:
    account = document["account"]
    if account is None:
        return f"unknown ({document['musivum']})"
    return f"{account['credits']:.3f} credits ({Tier(account['tier']).title()})"


def _aligned(facts: list[tuple[str, str]]) -> list[str]:
    return [f"{name:<10}{one_line(str(value))}" for name, value in facts]


def _line(proof: Json) -> str:
    at = datetime.fromtimestamp(proof["settled_at"]).strftime("%Y-%m-%d %H:%M:%S")
    end = f"{proof['credits']:.3f} credits"
    if proof["state"] == "refused":
        end = f"refused: {proof['code']}: {proof['text']}"
    return one_line(f"{at}  {proof['request_id'][:8]}  {proof['layer_positions']:>8}  {end}")
