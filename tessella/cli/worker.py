"""The command `tessella-worker`: one node, and what its operator wants to know beforehand."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import typer

from tessella.catalogue import home, require_model
from tessella.cli.keys import DEFAULT_KEY, KeyOption, keys_app
from tessella.cli.manifest import manifest
from tessella.cli.node import Manners, serve
from tessella.cli.options import (
    DEFAULT_LISTEN,
    BootstrapOption,
    MusivumsOption,
    announced,
    split_addrs,
)
from tessella.cli.plan import plan
from tessella.cli.planning import dtype_of
from tessella.cli.signals import run_command
from tessella.core.addresses import check_addr, is_private, merge, parse_peer
from tessella.core.errors import BadConfig
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.ending import run_program
from tessella.keys import load_or_create_key
from tessella.worker.config import WorkerConfig

PROGRAM = "tessella-worker"
# Peers of the swarm, for a start without any bootstrap that still answers.
SWARM_PEERS = "peers.json"
T = TypeVar("T")

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A node of the mesh: it holds a range of a model's layers, and serves it.",
)
app.add_typer(keys_app, name="keys")
app.command()(plan)
app.command()(manifest)


@app.callback(invoke_without_command=True)
def node(  # noqa: PLR0913 - typer makes a flag of each parameter
    context: typer.Context,
    musivum: MusivumsOption = None,
    kademlia: Annotated[
        bool, typer.Option("--kademlia", help="Be found through the swarm; needs no musivum.")
    ] = False,
    bootstrap: BootstrapOption = None,
    lan: Annotated[
        bool, typer.Option("--lan/--no-lan", help="With --kademlia: look on the local network too.")
    ] = True,
    model: Annotated[str | None, typer.Option(help="The name it is served under.")] = None,
    weights: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="GGUF file or HuggingFace directory. [default: --model]"),
    ] = None,
    claim_mb: Annotated[int | None, typer.Option(help="Memory for layers and KV, in MB.")] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(metavar="MULTIADDR", help="May be repeated. [default: all, port 9080]"),
    ] = None,
    public_ip: Annotated[
        str | None,
        typer.Option(envvar="TESSELLA_PUBLIC_IP", help="The address others reach this node at."),
    ] = None,
    public_p2p_port: Annotated[
        int | None,
        typer.Option(
            envvar="TESSELLA_PUBLIC_P2P_PORT", help="Its port there. [default: as listened on]"
        ),
    ] = None,
    allow_private_addrs: Annotated[
        bool,
        typer.Option(
            "--allow-private-addrs",
            envvar="TESSELLA_ALLOW_PRIVATE_ADDRS",
            help="Tell others this machine's private addresses: a mesh on a LAN.",
        ),
    ] = False,
    layers: Annotated[
        str | None, typer.Option(metavar="START:STOP", help="Insist on a range.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cuda, metal or cpu. [default: best]")] = None,
    dtype: Annotated[str | None, typer.Option(help="f32, f16 or bf16.")] = None,
    context_size: Annotated[
        int | None, typer.Option("--context", help="Positions of a session.")
    ] = None,
    slots: Annotated[int | None, typer.Option(help="Sessions the claim is sized for.")] = None,
    hop_timeout: Annotated[
        float | None, typer.Option(help="Seconds without progress that count as silence.")
    ] = None,
    key: KeyOption = DEFAULT_KEY,
    as_json: Annotated[
        bool, typer.Option("--json", help="Events as JSON lines on stdout.")
    ] = False,
    until_stdin_closes: Annotated[
        bool,
        typer.Option("--until-stdin-closes", help="End with whoever holds the other end of stdin."),
    ] = False,
    join_after_stdin: Annotated[bool, typer.Option("--join-after-stdin", hidden=True)] = False,
) -> None:
    """Join a mesh and serve, until Ctrl-C or SIGTERM; then say goodbye, and exit 0."""
    if context.invoked_subcommand is not None:
        return
    listening = tuple(map(check_addr, listen)) if listen else DEFAULT_LISTEN
    given = {
        "listen": listening,
        "announce": announced(public_ip, public_p2p_port, listening),
        "allow_private": allow_private_addrs or all(map(is_private, listening)),
        "layers": _range(layers),
        "device": device,
        "dtype": dtype_of(dtype),
        "context": context_size,
        "slots": slots,
        "hop_timeout": hop_timeout,
    }
    name, path = _model(model, weights)
    musivums = merge(map(parse_peer, split_addrs(musivum or ())))
    if not musivums and not kademlia:
        raise BadConfig("a node needs --musivum MULTIADDR (or TESSELLA_MUSIVUM), or --kademlia")
    config = WorkerConfig(
        musivum=musivums,
        kademlia=kademlia,
        lan=lan,
        bootstrap=tuple(map(parse_peer, bootstrap or ())),
        snapshot=home() / SWARM_PEERS if kademlia else None,
        model=name,
        weights=path,
        claim_mb=_required(claim_mb, "--claim-mb MB; `tessella-worker plan` tells what it buys"),
        **{key: value for key, value in given.items() if value is not None},  # type: ignore[arg-type]
    )
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("libp2p").setLevel(logging.WARNING)
    identity = load_or_create_key(key.expanduser())
    manners = Manners(
        as_json=as_json,
        until_stdin_closes=until_stdin_closes,
        join_after_stdin=join_after_stdin,
    )
    run_command(partial(serve, config, identity, manners))


def _required(value: T | None, flag: str) -> T:
    if value is None or value == "":
        raise BadConfig(f"a node needs {flag}")
    return value


def _model(name: str | None, weights: str | None) -> tuple[ModelId, Path]:
    """The name to serve under, and the files: each may be told by the other."""
    wanted = _required(weights or name, "--model NAME, or --weights PATH")
    found = require_model(wanted)
    return ModelId(name) if name and weights else found.name, found.path


def _range(text: str | None) -> LayerRange | None:
    try:
        return None if text is None else LayerRange.parse(text)
    except ValueError as exc:
        raise BadConfig(f"--layers: {exc}") from None


def run(args: Sequence[str] | None = None) -> NoReturn:
    """The program: `args`, or the command line."""
    run_program(app, PROGRAM, args)


if __name__ == "__main__":
    run()
