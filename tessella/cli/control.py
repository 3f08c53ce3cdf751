"""`tessella-worker pause | resume | drain | status`: a running node and its owner."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import trio
import typer

from tessella.cli.discovery import LOCAL_API
from tessella.cli.keys import DEFAULT_KEY, ExistingKeyOption
from tessella.cli.options import JsonOption
from tessella.core.errors import BadFrame, BadKey
from tessella.core.identity import Identity
from tessella.core.text import one_line
from tessella.keys import load_key

if TYPE_CHECKING:
    # It takes a fifth of a second to import, and the help of a command does not need it.
    import httpx

OPERATE_PATH, STATUS_PATH = "/api/v1/operate", "/status"
# A status document names every tensor and every peer.
MAX_STATUS = 1024 * 1024

ApiOption = Annotated[
    str,
    typer.Option(
        "--api-url",
        "-a",
        metavar="URL",
        help="Where the node answers over HTTP.",
    ),
]
MinutesOption = Annotated[
    float | None, typer.Option(help="How long. [default: until it is resumed]")
]
Document = dict[str, Any]


def pause(
    api_url: ApiOption = LOCAL_API,
    minutes: MinutesOption = None,
    key: ExistingKeyOption = DEFAULT_KEY,
    as_json: JsonOption = False,
) -> None:
    """Have the node on this machine free its memory: its sessions get a while to finish."""
    _order(api_url, key, {"order": "pause", "minutes": minutes}, as_json)


def resume(
    api_url: ApiOption = LOCAL_API,
    key: ExistingKeyOption = DEFAULT_KEY,
    as_json: JsonOption = False,
) -> None:
    """Have a paused node load what its mesh wants, and serve."""
    _order(api_url, key, {"order": "resume"}, as_json)


def drain(
    api_url: ApiOption = LOCAL_API,
    key: ExistingKeyOption = DEFAULT_KEY,
    as_json: JsonOption = False,
) -> None:
    """Have the node finish its sessions, say goodbye, and end."""
    _order(api_url, key, {"order": "drain"}, as_json)


def status(api_url: ApiOption = LOCAL_API, as_json: JsonOption = False) -> None:
    """What the node on this machine says of itself."""
    document = trio.run(_call, partial(_ask_status, api_url.rstrip("/")))
    print(json.dumps(document) if as_json else "\n".join(status_lines(document)))


def add_controls(app: typer.Typer) -> None:
    """Give a program these commands."""
    for command in (pause, resume, drain, status):
        app.command()(command)


def _order(api_url: str, key: Path, order: Document, as_json: bool) -> None:
    identity = _owner(key.expanduser())
    answer = trio.run(_call, partial(_tell, api_url.rstrip("/"), identity, order))
    print(json.dumps(answer) if as_json else answer_line(answer))


def _owner(path: Path) -> Identity:
    try:
        return load_key(path)
    except FileNotFoundError:
        raise BadKey(f"there is no key {path}: the key of the running node is needed") from None


async def _call(call: Callable[[httpx.AsyncClient], Awaitable[object]]) -> Document:
    from tessella.web.client import open_client

    async with open_client() as client:
        answer = await call(client)
    if not isinstance(answer, dict):
        raise BadFrame("an answer that is no object: is there a node at that URL?")
    return answer


async def _tell(url: str, identity: Identity, order: Document, client: httpx.AsyncClient) -> object:
    from tessella.web.signed_posts import Caller, post_signed

    body = json.dumps(order).encode()
    # A node's owner signs with its key, to itself.
    caller = Caller(identity, identity.peer_id, time.time())
    return await post_signed(client, url + OPERATE_PATH, OPERATE_PATH, body, caller)


async def _ask_status(url: str, client: httpx.AsyncClient) -> object:
    from tessella.web.client import CallLimits, get_json

    return await get_json(client, url + STATUS_PATH, limits=CallLimits(answer=MAX_STATUS))


def answer_line(answer: Document) -> str:
    """What an order was answered with, for people."""
    if answer.get("order") == "drain":
        return "draining: it ends once its sessions have"
    why, left = answer.get("paused_by"), answer.get("resumes_in_seconds")
    if not isinstance(why, str):
        return "serving, once it has loaded"
    until = f", for {left / 60:.0f} minutes" if isinstance(left, int | float) else ""
    return f"paused ({one_line(why)}){until}"


def status_lines(document: Document) -> list[str]:
    """The main facts of a status document, a line each."""
    sessions = document.get("sessions")
    facts = {
        "peer": document.get("peer_id"),
        "status": document.get("status"),
        "paused": document.get("paused_by"),
        "model": document.get("model"),
        "layers": _range(document.get("layer_range")),
        "device": document.get("device"),
        "sessions": len(sessions) if isinstance(sessions, list) else None,
        "claim": f"{document['claim_mb']} MB" if "claim_mb" in document else None,
    }
    return [
        f"{name:<10}{one_line(str(value))}" for name, value in facts.items() if value is not None
    ]


def _range(value: object) -> str | None:
    return f"{value[0]}:{value[1]}" if isinstance(value, list) and len(value) == 2 else None
