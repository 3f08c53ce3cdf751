"""`tessella fim`: the text between two others."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Annotated

import typer

from tessella.cli.answer import Answer
from tessella.cli.asking import open_asking
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
from tessella.cli.conversation import request_to_fill
from tessella.cli.dialogue import tell_numbers
from tessella.cli.discovery import Way
from tessella.cli.options import (
    DEFAULTS,
    BootstrapOption,
    JsonOption,
    MinPOption,
    MusivumOption,
    SeedOption,
    StopOption,
    TopKOption,
    TopPOption,
)
from tessella.cli.signals import Interrupts, run_command
from tessella.cli.voice import PlainVoice, SilentVoice
from tessella.core.completions import Fill
from tessella.core.errors import BadConfig
from tessella.core.sampling import Sampling


def fim(  # noqa: PLR0913 - typer makes a flag of each parameter
    ctx: typer.Context,
    prefix: Annotated[str, typer.Option(help="The text before the gap.")] = "",
    suffix: Annotated[str, typer.Option(help="The text after the gap.")] = "",
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
    timing: TimingOption = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Fill in the middle: what a model that was trained for it writes between two texts.

    The node is found as `tessella chat` finds it. The text is on stdout, all else on stderr.
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
    answer_gap(way, Fill(prefix, suffix), sampling, timing=timing, as_json=as_json)


def answer_gap(way: Way, fill: Fill, sampling: Sampling, *, timing: bool, as_json: bool) -> None:
    """Fill one gap on stdout: its text as it comes, or one line of JSON at its end.

    Raises BadConfig where there is nothing around it.
    """
    if not (fill.prefix or fill.suffix):
        raise BadConfig("there is nothing around the gap: --prefix, --suffix, or both")
    voice = SilentVoice() if as_json else PlainVoice()
    answer = Answer()

    async def main(_: Interrupts) -> None:
        async with open_asking(way) as asking:
            make = partial(request_to_fill, fill=fill, sampling=sampling)
            try:
                await asking.ask(make, answer, voice.say)
            finally:
                # What is piped on is the gap, and no line end after it.
                if sys.stdout.isatty():
                    voice.end()

    run_command(main)
    tell_numbers(answer, chain=True, timing=timing)
    if as_json:
        print(json.dumps(answer.document(), ensure_ascii=False), flush=True)
