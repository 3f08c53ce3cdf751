"""`musivum status` and `musivum peers`: what anyone may know of a mesh."""

from __future__ import annotations

from typing import Annotated

import typer

from musivum.cli.asking import Document, ask, door_of, many, one
from musivum.cli.options import ConfigOption, DataOption, JsonOption, UrlOption
from musivum.cli.showing import show_facts, show_json, show_records, show_rows, span

STATUS, PEERS = "/status", "/peers"
_MODELS = {"model": "model", "health": "health", "total_layers": "layers", "nodes": "nodes"}


def status(
    url: UrlOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """How a musivum is: where it listens, its nodes by status, its models and their holes."""
    document = one(ask(door_of(url, data, config), STATUS))
    if as_json:
        show_json(document)
        return
    nodes = one(document.get("nodes"))
    by_status = " ".join(f"{name} {count}" for name, count in one(nodes.get("by_status")).items())
    show_facts(
        {
            "musivum": document.get("version"),
            "peer id": document.get("peer_id"),
            "addrs": document.get("addrs"),
            "up": f"{document.get('uptime_seconds')} s",
            "nodes": f"{nodes.get('total')}  {by_status}".rstrip(),
        }
    )
    models = many(document.get("models"))
    if models:
        rows = [{**model, "holes": _holes(model)} for model in models]
        show_records("models", {**_MODELS, "holes": "holes"}, rows)


def _holes(model: Document) -> str:
    holes = many(model.get("holes"))
    return ", ".join(f"{hole.get('start')}:{hole.get('stop')}" for hole in holes)


def peers(
    model: Annotated[str, typer.Option(help="Only the nodes of this model.")] = "",
    url: UrlOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the nodes of a mesh, by model and layer range."""
    query = {"model_id": model} if model else None
    rows = many(ask(door_of(url, data, config), PEERS, query))
    if as_json:
        show_json(rows)
        return
    headings = ("peer id", "model", "layers", "status", "device", "dtype", "queue", "step ms")
    show_rows(f"nodes: {len(rows)}", (*headings, "addrs"), map(_cells, rows))


def _cells(row: Document) -> list[object]:
    layers = " ".join(map(span, row.get("layer_ranges") or ()))
    return [
        row.get("peer_id"),
        row.get("model_id"),
        f"{layers} of {row.get('total_layers')}",
        row.get("status"),
        row.get("device"),
        row.get("dtype"),
        row.get("queue_depth"),
        row.get("step_ms") or None,
        " ".join(map(str, row.get("p2p_addrs") or ())),
    ]
