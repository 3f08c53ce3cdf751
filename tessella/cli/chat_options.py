"""Flags of the commands that ask a model, and what they mean with the configuration behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from tessella.cli.client_config import ClientConfig, client_key, read_config
from tessella.cli.discovery import Way, way_of
from tessella.cli.options import DEFAULTS, sampling_of, split_addrs
from tessella.core.sampling import Sampling

ApiUrlOption = Annotated[
    str | None,
    typer.Option(
        "--api-url", "-a", metavar="URL", help="Ask the HTTP API of a node: http://HOST:8080."
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", "--model-id", metavar="ID", help="Needed where a mesh serves several."),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="PATH",
        help="The client's configuration. [default: ~/.config/tessella/client.toml]",
    ),
]
PeerOption = Annotated[
    str | None, typer.Option(metavar="MULTIADDR", help="Ask this node, and no musivum.")
]
# Without a default of their own: the configuration may have one.
TokensOption = Annotated[
    int | None,
    typer.Option("--max-tokens", "-m", help="Tokens of an answer, at most. [default: 512]"),
]
WarmthOption = Annotated[
    float | None,
    typer.Option("--temperature", help="0 takes the most probable token. [default: 0]"),
]
TimingOption = Annotated[
    bool, typer.Option("--timing", help="Tell where the time went, and the chain.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Whom to ask, as far as flags say it: all may be nothing."""

    api_url: str | None = None
    peer: str | None = None
    bootstrap: Sequence[str] = ()
    musivum: str | None = None
    """Also the environment's."""
    model: str | None = None
    config: Path | None = None

    def behind(self, other: Asked) -> Asked:
        """The other's flags, and what they do not say as it is here."""
        return Asked(
            api_url=other.api_url or self.api_url,
            peer=other.peer or self.peer,
            bootstrap=other.bootstrap or self.bootstrap,
            musivum=other.musivum or self.musivum,
            model=other.model or self.model,
            config=other.config or self.config,
        )


def asked_globally(ctx: typer.Context) -> Asked:
    """What stood before the subcommand."""
    found = ctx.find_object(Asked)
    return Asked() if found is None else found


def configured(ctx: typer.Context, asked: Asked) -> tuple[Way, ClientConfig]:
    """How to find a node, in whose name, and the configuration.

    Raises BadAddress, BadConfig, and BadKey for the client's key if it cannot be used.

    A flag of the subcommand goes before one that stands in front of it, and both before the
    configuration.
    """
    together = asked_globally(ctx).behind(asked)
    config = read_config(together.config)
    way = chosen_way(together, config)
    # A node that is named is asked in nobody's name: a ticket would lead to another.
    if way.names_one or not (way.musivum or way.musivum_url):
        return way, config
    return replace(way, key=client_key(together.config)), config


def chosen_way(asked: Asked, config: ClientConfig) -> Way:
    """The way that flags name, else that of the configuration; it may be empty.

    The configured model is for a mesh, which may serve several: a node that is named has its own.
    """
    way = way_of(
        asked.musivum,
        asked.peer,
        split_addrs(asked.bootstrap),
        asked.model or "",
        asked.api_url,
    )
    if way.is_empty:
        return replace(config.way(), model=asked.model or config.model or "")
    if way.names_one:
        return way
    return replace(way, model=asked.model or config.model or "")


def sampling_asked(  # noqa: PLR0913 - a flag each
    config: ClientConfig,
    *,
    max_tokens: int | None,
    temperature: float | None,
    top_p: float = DEFAULTS.top_p,
    top_k: int = DEFAULTS.top_k,
    min_p: float = DEFAULTS.min_p,
    seed: int | None = None,
    stop: list[str] | None = None,
) -> Sampling:
    """As `sampling_of`, with the configuration behind the flags that were not given."""
    return sampling_of(
        max_tokens=config.max_tokens if max_tokens is None else max_tokens,
        temperature=config.temperature if temperature is None else temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
        stop=stop,
    )
