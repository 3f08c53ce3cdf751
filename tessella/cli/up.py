"""`tessella up`: a whole mesh on this machine, and a conversation with it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import trio
import typer

from p2p.peers import Host
from tessella.catalogue import DEFAULT_MODEL, LocalModel, home
from tessella.cli.answer import Answer
from tessella.cli.asking import Asking
from tessella.cli.conversation import Conversation, new_session
from tessella.cli.dialogue import Dialogue
from tessella.cli.discovery import Way, client_host
from tessella.cli.mesh import MIN_VRAM_MB, MeshPlan, open_mesh
from tessella.cli.options import (
    DEFAULT_CONTEXT,
    DEFAULT_SLOTS,
    DEFAULTS,
    JsonOption,
    MaxTokensOption,
    MinPOption,
    SeedOption,
    StopOption,
    SystemOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
    sampling_of,
)
from tessella.cli.planning import dtype_of, lay_out, parse_claims, read_checkpoint
from tessella.cli.render import Document, LoadingBars
from tessella.cli.signals import Interrupts, run_command
from tessella.cli.talk import talk
from tessella.cli.terminal import is_interactive, read_piped
from tessella.cli.voice import PlainVoice, SilentVoice, note
from tessella.client import ask_peers, ask_status
from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadConfig
from tessella.core.messages import Stage
from tessella.core.plan import even_claims
from tessella.core.shapes import DType

DEFAULT_WORKERS = 3
# Each is a process of its own, and all share the cores of one machine.
MAX_WORKERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """What mesh to bring up, and what to ask it."""

    model: str
    workers: int
    claims: tuple[int, ...]
    """Claims in MB; none means an even split over `workers`."""
    directory: Path
    context: int
    slots: int
    device: str | None
    dtype: DType | None
    prompt: str | None
    """None holds a conversation."""
    as_json: bool

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= MAX_WORKERS:
            raise BadConfig(f"workers must be from 1 to {MAX_WORKERS}, not {self.workers}")
        if self.prompt is not None and not self.prompt.strip():
            raise BadConfig("nothing to ask: --prompt TEXT, or a terminal to talk at")


def up(  # noqa: PLR0913 - typer makes a flag of each parameter
    model: Annotated[str, typer.Option(metavar="NAME|PATH")] = DEFAULT_MODEL,
    workers: Annotated[int, typer.Option(help="Processes to split the model over.")] = (
        DEFAULT_WORKERS
    ),
    claims: Annotated[
        str | None,
        typer.Option(metavar="MB,MB,…", help="Memory of each worker. [default: an even split]"),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Keys and logs. [default: up in TESSELLA_HOME]"),
    ] = None,
    context: Annotated[int, typer.Option(min=1, help="Positions of a conversation.")] = (
        DEFAULT_CONTEXT
    ),
    slots: Annotated[int, typer.Option(min=1, help="Conversations at a time.")] = DEFAULT_SLOTS,
    device: Annotated[str | None, typer.Option(help="cuda, metal or cpu. [default: best]")] = None,
    dtype: Annotated[str | None, typer.Option(help="f32, f16 or bf16.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Answer this, and end.")] = None,
    max_tokens: MaxTokensOption = DEFAULTS.max_tokens,
    temperature: TemperatureOption = DEFAULTS.temperature,
    top_p: TopPOption = DEFAULTS.top_p,
    top_k: TopKOption = DEFAULTS.top_k,
    min_p: MinPOption = DEFAULTS.min_p,
    seed: SeedOption = None,
    stop: StopOption = None,
    system: SystemOption = "",
    as_json: JsonOption = False,
) -> None:
    """Run a mesh on this machine and talk to it: a musivum, and workers that share one model.

    It all ends with this command. Nothing listens beyond the loopback interface.
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
    parsed = tuple(parse_claims(claims)) if claims is not None else ()
    if prompt is None and (as_json or not is_interactive()):
        prompt = read_piped()
    options = UpOptions(
        model=model,
        workers=len(parsed) or workers,
        claims=parsed,
        directory=(directory or home() / "up").expanduser().absolute(),
        context=context,
        slots=slots,
        device=device,
        dtype=dtype_of(dtype),
        prompt=prompt,
        as_json=as_json,
    )
    session = new_session() if prompt is None else ""
    conversation = Conversation(sampling=sampling, system=system, session=session)

    async def main(interrupts: Interrupts) -> None:
        await bring_up(options, conversation, interrupts)

    run_command(main)


async def bring_up(options: UpOptions, conversation: Conversation, interrupts: Interrupts) -> None:
    """Fetch, plan, start, talk; everything started has ended when this returns or raises."""
    # pip and the hub are for those who lack the model.
    from tessella.cli.pull import obtain
    from tessella.web.client import open_client

    model = await obtain(options.model, note)
    plan = await trio.to_thread.run_sync(plan_mesh, options, model)
    note(
        f"{model.name} on {plan.device} ({plan.dtype.value}), {len(plan.claims)} workers with "
        f"claims of {', '.join(map(str, plan.claims))} MB; keys and logs in {plan.directory}"
    )
    with LoadingBars(sys.stderr) as bars:
        async with (
            open_mesh(plan, bars.note) as mesh,
            client_host() as host,
            open_client() as client,
        ):
            bars.stop()
            note(f"musivum: {mesh.musivum.full()[0]}\nfor OpenAI clients: {mesh.api_url}")
            way = Way(musivum=mesh.musivum, model=model.name)
            voice = SilentVoice() if options.as_json else PlainVoice()
            dialogue = Dialogue(Asking(way, host, client), conversation, voice=voice)
            if options.prompt is None:
                await talk(dialogue, interrupts)
                return
            answer = await dialogue.answer(options.prompt)
            dialogue.conclude(answer)
            if options.as_json:
                print(await up_line(answer, host, mesh.musivum, plan), flush=True)


def plan_mesh(options: UpOptions, model: LocalModel) -> MeshPlan:
    """Claims that hold the whole model, checked before anything is started.

    Raises BadWeights, UnsupportedModel, BadConfig; ClaimTooSmall that names what is missing.
    """
    checkpoint = read_checkpoint(model.path, options.device, options.dtype)
    terms = checkpoint.terms(context=options.context, slots=options.slots, min_vram_mb=MIN_VRAM_MB)
    claims = options.claims or tuple(even_claims(terms, options.workers))
    lay_out(terms, claims).check()
    return MeshPlan(
        model=model,
        claims=claims,
        directory=options.directory,
        context=options.context,
        slots=options.slots,
        device=checkpoint.device,
        dtype=checkpoint.dtype,
    )


async def up_line(answer: Answer, host: Host, musivum: PeerAddress, plan: MeshPlan) -> str:
    """The answer as a line of JSON, with what every stage counted meanwhile."""
    document = answer.document()
    document["hops"] = await hop_documents(host, musivum, answer.chain)
    document["musivum"] = await musivum_document(host, musivum)
    document |= {
        "claims": list(plan.claims),
        "device": plan.device,
        "dtype": plan.dtype.value,
        "dir": str(plan.directory),
    }
    return json.dumps(document, ensure_ascii=False)


async def hop_documents(
    host: Host, musivum: PeerAddress, chain: tuple[Stage, ...]
) -> list[Document]:
    """What each stage of a chain counted: frames and bytes of hidden states, by the other peer."""
    addresses = {row.peer_id: row.addrs for row in await ask_peers(host, musivum)}
    found = []
    for stage in chain:
        peer = PeerAddress(stage.peer_id, addresses.get(stage.peer_id, ()))
        status = await ask_status(host, peer)
        found.append({"peer_id": stage.peer_id, **dict(status.get("hops") or {})})
    return found


async def musivum_document(host: Host, musivum: PeerAddress) -> Document:
    """What musivum speaks, and what passed through it: frames by kind, none of hidden states."""
    status = await ask_status(host, musivum)
    return {key: status.get(key) for key in ("peer_id", "protocols", "frames")}
