"""Flags that several commands share, and what they mean together."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Any

import typer

from tessella.core.sampling import Sampling
from tessella.worker.config import WorkerConfig

DEFAULTS = Sampling()
_NODE: dict[str, Any] = {field.name: field.default for field in fields(WorkerConfig)}
DEFAULT_CONTEXT: int = _NODE["context"]
DEFAULT_SLOTS: int = _NODE["slots"]
MUSIVUM_VARIABLE = "TESSELLA_MUSIVUM"


def split_addrs(given: Iterable[str]) -> list[str]:
    """The addresses in texts that may hold several each, between commas or spaces."""
    return [addr for text in given for addr in text.replace(",", " ").split()]


def _first_of(given: str | None) -> str | None:
    """Whoever asks once asks the first of several."""
    return next(iter(split_addrs([given or ""])), None)


MusivumOption = Annotated[
    str | None,
    typer.Option(
        "--musivum",
        metavar="MULTIADDR",
        envvar=MUSIVUM_VARIABLE,
        callback=_first_of,
        help="The mesh's musivum: /ip4/HOST/tcp/PORT/p2p/ID, or its URL.",
    ),
]
BootstrapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--bootstrap",
        metavar="MULTIADDR",
        help="A peer of the swarm, to find the others through; may be repeated.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One line of JSON on stdout.")]
MaxTokensOption = Annotated[int, typer.Option(help="Tokens of an answer, at most.")]
TemperatureOption = Annotated[float, typer.Option(help="0 takes the most probable token.")]
TopPOption = Annotated[float, typer.Option(help="Sample from this much probability.")]
TopKOption = Annotated[int, typer.Option(help="Sample from this many tokens; 0 is all.")]
MinPOption = Annotated[float, typer.Option(help="Drop tokens below this part of the best.")]
SeedOption = Annotated[
    int | None, typer.Option(help="Same seed, same answer. [default: another each time]")
]
StopOption = Annotated[
    list[str] | None, typer.Option(help="A text that ends the answer; may be repeated.")
]
SystemOption = Annotated[str, typer.Option(help="A system message before the conversation.")]

# Every seed a client can ask for; 64 bits.
SEED_BITS = 64


def sampling_of(
    *,
    max_tokens: int = DEFAULTS.max_tokens,
    temperature: float = DEFAULTS.temperature,
    top_p: float = DEFAULTS.top_p,
    top_k: int = DEFAULTS.top_k,
    min_p: float = DEFAULTS.min_p,
    seed: int | None = None,
    stop: list[str] | None = None,
) -> Sampling:
    """The sampling that the flags ask for. Raises BadRequest that names the one out of its rule."""
    return Sampling(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=secrets.randbits(SEED_BITS) if seed is None else seed,
        stop=tuple(stop or ()),
    )
