"""`tessella-worker plan`: which layers a claim buys, before anything is started."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from tessella.catalogue import require_model
from tessella.cli.options import DEFAULT_CONTEXT, DEFAULT_SLOTS
from tessella.cli.planning import Layout, dtype_of, lay_out, read_checkpoint
from tessella.cli.render import Document
from tessella.core.errors import BadConfig
from tessella.core.plan import MIN_VRAM_MB, even_claims
from tessella.tables import console, table


def plan(  # noqa: PLR0913 - typer makes a flag of each parameter
    model: Annotated[str | None, typer.Option(help="A model on this machine.")] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="PATH", help="GGUF file or HuggingFace directory.")
    ] = None,
    claim_mb: Annotated[
        list[int] | None, typer.Option(min=1, help="A claim; repeated, in order of joining.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Find claims that split the model over so many.")
    ] = None,
    context: Annotated[int, typer.Option(min=1, help="Positions of a session.")] = DEFAULT_CONTEXT,
    slots: Annotated[int, typer.Option(min=1, help="Sessions at a time.")] = DEFAULT_SLOTS,
    device: Annotated[str | None, typer.Option(help="cuda, metal or cpu.")] = None,
    dtype: Annotated[str | None, typer.Option(help="f32, f16 or bf16.")] = None,
    min_vram_mb: Annotated[int, typer.Option(min=0, help="musivum's floor.")] = MIN_VRAM_MB,
    as_json: Annotated[bool, typer.Option("--json", help="One object.")] = False,
) -> None:
    """Show the layer ranges that claims get on an empty mesh, and what layers cost."""
    if not (weights or model):
        raise BadConfig("plan for what? --model NAME, or --weights PATH")
    if claim_mb and workers is not None:
        raise BadConfig("--claim-mb says the claims, --workers asks for them: choose one")
    found = require_model(weights or model or "")
    checkpoint = read_checkpoint(found.path, device, dtype_of(dtype))
    terms = checkpoint.terms(context=context, slots=slots, min_vram_mb=min_vram_mb)
    claims = claim_mb or ([] if workers is None else even_claims(terms, workers))
    layout = lay_out(terms, claims)
    named = {"model": found.name, "device": checkpoint.device, "dtype": checkpoint.dtype.value}
    if as_json:
        print(json.dumps({**named, **layout.document()}))
    else:
        show(layout, named)


def show(layout: Layout, named: Document) -> None:
    """The layout as text: prices, then a row a claim, then what is missing."""
    facts = layout.document()
    out = console(sys.stdout)
    out.print(" ".join(str(value) for value in named.values()), markup=False)
    prices = ("total_layers", "weights_per_layer_mb", "kv_per_layer_mb", "embedding_mb", "head_mb")
    rows = [(key.replace("_", " "), facts[key]) for key in (*prices, "whole_model_claim_mb")]
    out.print(table("", ("", ""), rows))
    if layout.claims:
        out.print(table("", ("claim MB", "layers", "needed MB"), _rows(facts["ranges"])))
        for hole in facts["holes"]:
            missing = f"layers {hole['start']}:{hole['stop']} are nobody's: {hole['claim_mb']} MB"
            out.print(missing, markup=False)


def _rows(ranges: list[Document]) -> list[tuple[object, ...]]:
    return [(one["claim_mb"], _words(one["layer_range"]), one["needed_mb"]) for one in ranges]


def _words(layer_range: list[int] | None) -> str:
    return "none" if layer_range is None else f"{layer_range[0]}:{layer_range[1]}"
