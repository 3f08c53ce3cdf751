"""`tessella chat`: ask a mesh, and read the answer as it comes."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tessella.cli.conversation import Conversation
from tessella.cli.dialogue import Dialogue, hold, write
from tessella.cli.discovery import Way, client_host, way_of
from tessella.cli.options import (
    DEFAULTS,
    BootstrapOption,
    JsonOption,
    MaxTokensOption,
    MinPOption,
    MusivumOption,
    SeedOption,
    StopOption,
    SystemOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
    sampling_of,
)
from tessella.cli.signals import Interrupts, run_command
from tessella.cli.terminal import is_interactive, read_line, read_piped, terminal_restored


def chat(  # noqa: PLR0913 - typer makes a flag of each parameter
    prompt: Annotated[
        str | None,
        typer.Argument(help="Without one: a conversation, or the prompt that is piped in."),
    ] = None,
    musivum: MusivumOption = None,
    peer: Annotated[
        str | None,
        typer.Option(metavar="MULTIADDR", help="Ask this node, and no musivum."),
    ] = None,
    bootstrap: BootstrapOption = None,
    model: Annotated[str, typer.Option(help="Needed where a mesh serves several.")] = "",
    max_tokens: MaxTokensOption = DEFAULTS.max_tokens,
    temperature: TemperatureOption = DEFAULTS.temperature,
    top_p: TopPOption = DEFAULTS.top_p,
    top_k: TopKOption = DEFAULTS.top_k,
    min_p: MinPOption = DEFAULTS.min_p,
    seed: SeedOption = None,
    stop: StopOption = None,
    system: SystemOption = "",
    raw: Annotated[
        bool, typer.Option("--raw", help="No chat template: continue the text.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Talk to a model of the mesh. The answer is on stdout, everything else on stderr.

    Ctrl-C stops an answer, Ctrl-D ends a conversation. Exit 75 where trying again later may help.
    """
    sampling = sampling_of(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
        stop=stop,
    )
    conversation = Conversation(sampling=sampling, system=system, raw=raw)
    run_chat(way_of(musivum, peer, bootstrap or (), model), conversation, prompt, as_json=as_json)


def run_chat(way: Way, conversation: Conversation, prompt: str | None, *, as_json: bool) -> None:
    """Answer a prompt and return, or hold a conversation where there is none and a terminal."""
    if prompt is None and (as_json or not is_interactive()):
        prompt = read_piped()

    async def main(interrupts: Interrupts) -> None:
        async with client_host() as host:
            dialogue = Dialogue(host, way, conversation)
            if prompt is not None:
                await answer_once(dialogue, prompt, as_json=as_json)
            else:
                with terminal_restored():
                    await hold(dialogue, interrupts, read_line)

    run_command(main)


async def answer_once(dialogue: Dialogue, prompt: str, *, as_json: bool) -> None:
    """Answer one question on stdout: its text as it comes, or one line of JSON at its end."""
    dialogue.say = _nothing if as_json else write
    answer = await dialogue.answer(prompt)
    dialogue.conclude(answer)
    if as_json:
        print(json.dumps(answer.document(), ensure_ascii=False), flush=True)


def _nothing(_: str) -> None:
    """Where the answer is printed at its end."""
