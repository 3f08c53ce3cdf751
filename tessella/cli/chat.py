"""`tessella chat`: ask a model, and read the answer as it comes."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from tessella.cli.chat_options import (
    ApiUrlOption,
    Asked,
    ConfigOption,
    ModelOption,
    PeerOption,
    TimingOption,
    TokensOption,
    WarmthOption,
    configured,
    sampling_asked,
)
from tessella.cli.chat_plan import ChatPlan, run_chat
from tessella.cli.fim import answer_gap
from tessella.cli.options import (
    DEFAULTS,
    BootstrapOption,
    JsonOption,
    MinPOption,
    MusivumOption,
    SeedOption,
    StopOption,
    SystemOption,
    TopKOption,
    TopPOption,
)
from tessella.core.completions import Fill
from tessella.core.errors import BadConfig


class Mode(Enum):
    """What becomes of a prompt."""

    CHAT = "chat"
    """It goes through the model's chat template."""
    RAW = "raw"
    """It is a text to go on with, as it is."""


def chat(  # noqa: PLR0913 - typer makes a flag of each parameter
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROMPT",
            help="Without one: a conversation, or the prompt that is piped in.",
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="The same, as a flag.")
    ] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Go on with a conversation.")
    ] = False,
    session_file: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Keep the conversation here, and go on with the one that is."
        ),
    ] = None,
    api_url: ApiUrlOption = None,
    peer: PeerOption = None,
    bootstrap: BootstrapOption = None,
    musivum: MusivumOption = None,
    model: ModelOption = None,
    max_tokens: TokensOption = None,
    temperature: WarmthOption = None,
    top_p: TopPOption = DEFAULTS.top_p,
    top_k: TopKOption = DEFAULTS.top_k,
    min_p: MinPOption = DEFAULTS.min_p,
    seed: SeedOption = None,
    stop: StopOption = None,
    system: SystemOption = "",
    mode: Annotated[Mode, typer.Option(help="raw: no chat template, continue the text.")] = (
        Mode.CHAT
    ),
    raw: Annotated[bool, typer.Option("--raw", help="The same as --mode raw.")] = False,
    prefix: Annotated[
        str | None, typer.Option(help="Fill the gap after this text, in place of a prompt.")
    ] = None,
    suffix: Annotated[str | None, typer.Option(help="Fill the gap before this text.")] = None,
    markdown: Annotated[
        bool | None,
        typer.Option(
            "--markdown/--plain", help="Draw answers. [default: in a conversation at a terminal]"
        ),
    ] = None,
    timing: TimingOption = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Talk to a model. The answer is on stdout, everything else on stderr.

    Asked is, in this order: --api-url, --peer, whoever --bootstrap or --musivum lists, what the
    configuration names, a node on this machine.
    Ctrl-C stops an answer, Ctrl-D ends a conversation. Exit 75 where trying again later may help.
    """
    asked = Asked(
        api_url=api_url,
        peer=peer,
        bootstrap=bootstrap or (),
        musivum=musivum,
        model=model,
        config=config,
    )
    way, settings = configured(ctx, asked)
    sampling = sampling_asked(
        settings,
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
        stop=stop,
    )
    plan = ChatPlan(
        way=way,
        sampling=sampling,
        system=system,
        raw=raw or mode is Mode.RAW,
        prompt=prompt_of(words, prompt),
        interactive=interactive,
        file=session_file,
        markdown=markdown,
        timing=timing,
        as_json=as_json,
    )
    if prefix is None and suffix is None:
        run_chat(plan)
    elif plan.is_only_a_gap:
        answer_gap(way, Fill(prefix or "", suffix or ""), sampling, timing=timing, as_json=as_json)
    else:
        raise BadConfig("--prefix and --suffix are all that is asked: no prompt, no conversation")


def prompt_of(words: list[str] | None, prompt: str | None) -> str | None:
    """The prompt, in words or as a flag; None if neither is given. Raises BadConfig for both."""
    if words and prompt is not None:
        raise BadConfig(f"two prompts: --prompt, and {' '.join(words)!r:.80}")
    return " ".join(words) if words else prompt
