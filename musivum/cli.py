"""The command: `musivum serve`. It parses, calls, says where it can be reached, and returns."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import trio
import typer

from musivum.app import serve as serve_host
from musivum.config import DEFAULT_DATA, DEFAULT_PORT, PEERS_NAME, MusivumConfig
from tessella.core.addresses import PeerAddress, check_addr, parse_peer
from tessella.core.errors import BadAddress, TessellaError
from tessella.core.exits import EXIT_ERROR, exit_code, leaves
from tessella.core.identity import Identity
from tessella.keys import load_or_create_key

READ_BYTES = 4096
_DEFAULTS = MusivumConfig()

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="The mesh's bootstrap peer and tracker. It never receives a tensor.",
)


@app.callback()
def _musivum() -> None:
    """Without a callback typer would make the one command the program itself."""


@app.command()
def serve(
    p2p: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help=f"Listen here; a multiaddr will do; may be repeated. [default: :{DEFAULT_PORT}]",
        ),
    ] = None,
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="What outlives a restart; made if missing.")
    ] = DEFAULT_DATA,
    bootstrap_only: Annotated[
        bool,
        typer.Option("--bootstrap-only", help="Only help peers of the swarm find each other."),
    ] = False,
    bootstrap: Annotated[
        list[str] | None,
        typer.Option(metavar="MULTIADDR", help="Another bootstrap peer; may be repeated."),
    ] = None,
    min_vram_mb: Annotated[
        int, typer.Option(metavar="MB", help="No node may claim less; 0 lets tiny models be split.")
    ] = _DEFAULTS.min_vram_mb,
    json_lines: Annotated[
        bool, typer.Option("--json", help="Say so in one JSON line when it listens.")
    ] = False,
    until_stdin_closes: Annotated[
        bool,
        typer.Option(
            "--until-stdin-closes", help="End with whoever holds the other end of standard input."
        ),
    ] = False,
) -> None:
    """Run a musivum until it is told to stop (Ctrl-C, SIGTERM). Exit 0 then."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    listen = tuple(map(listen_addr, p2p)) if p2p else _DEFAULTS.listen
    config = MusivumConfig(
        listen=listen,
        data=data,
        bootstrap_only=bootstrap_only,
        bootstrap=tuple(map(parse_peer, bootstrap or ())),
        snapshot=data.expanduser() / PEERS_NAME,
        min_vram_mb=min_vram_mb,
    )
    identity = load_or_create_key(config.key_path)
    trio.run(_serve, config, identity, json_lines, until_stdin_closes)


def listen_addr(text: str) -> str:
    """A multiaddr to listen on, from itself or from HOST:PORT (`[::]:4001`, `:4001`).

    Raises BadAddress that names the text.
    """
    if text.startswith("/"):
        return check_addr(text)
    host, colon, port = text.rpartition(":")
    if not colon:
        raise BadAddress(f"not HOST:PORT, nor a multiaddr: {text!r}")
    host = {"": "0.0.0.0", "localhost": "127.0.0.1"}.get(host, host)
    family = "ip6" if host.startswith("[") and host.endswith("]") else "ip4"
    try:
        return check_addr(f"/{family}/{host.strip('[]')}/tcp/{port}")
    except BadAddress as exc:
        raise BadAddress(f"cannot listen on {text!r}: {exc}") from None


async def _serve(
    config: MusivumConfig, identity: Identity, json_lines: bool, until_stdin_closes: bool
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        # libp2p takes a second to import, and neither --help nor a wrong flag needs it.
        from p2p.configuration import MUSIVUM_LIMITS
        from p2p.host import open_host
        from p2p.supervisor import supervise

        limits = replace(MUSIVUM_LIMITS, connections=config.max_connections)

        async def once() -> None:
            async with (
                open_host(identity, listen=config.listen, limits=limits) as host,
                trio.open_nursery() as serving,
            ):
                program = partial(serve_host, host, config, clock=time.time)
                _say_ready(await serving.start(program), json_lines)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_on_signal, signals, nursery.cancel_scope)
            if until_stdin_closes:
                nursery.start_soon(_stop_with_stdin, nursery.cancel_scope)
            # Another start would listen on another port, where nobody looks for it.
            if any(addr.endswith("/tcp/0") for addr in config.listen):
                await once()
            else:
                await supervise(once)


def _say_ready(address: PeerAddress, json_lines: bool) -> None:
    if json_lines:
        ready = {"event": "ready", "peer_id": address.peer_id, "addrs": address.full()}
        typer.echo(json.dumps(ready))
    else:
        typer.echo(f"musivum {address.peer_id} listens on")
        for addr in address.full():
            typer.echo(f"  {addr}")
    sys.stdout.flush()


async def _stop_on_signal(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()


async def _stop_with_stdin(scope: trio.CancelScope) -> None:
    def read() -> bytes:
        # Not through sys.stdin: an interpreter that ends while a thread holds its lock aborts.
        return os.read(0, READ_BYTES)

    # The stubs that libp2p brings along are older than this argument.
    wait = partial(trio.to_thread.run_sync, read, abandon_on_cancel=True)  # type: ignore[call-arg, unused-ignore]
    while await wait():
        pass
    scope.cancel()


def run() -> None:
    """The program. One line on stderr for whatever went wrong, and its exit code."""
    try:
        app()
    except Exception as raised:  # noqa: BLE001 - a command ends in one line, not in a traceback
        error = _cause(raised)
        code, status = "internal_error", EXIT_ERROR
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, TessellaError):
            code, status, text = error.code, exit_code(error), str(error)
        typer.echo(f"musivum: {code}: {' '.join(text.split())}", err=True)
        sys.exit(status)


def _cause(raised: BaseException) -> BaseException:
    """What went wrong: a bug of ours before all else."""
    found = list(leaves(raised))
    return next((leaf for leaf in found if not isinstance(leaf, TessellaError)), found[0])


if __name__ == "__main__":
    run()
