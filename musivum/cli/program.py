"""A musivum as a process: a store that is ours alone, then a host, then everything on it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import trio
import typer

from musivum.config import MusivumConfig
from tessella.collector import spare_the_collector
from tessella.core.identity import Identity

if TYPE_CHECKING:
    from musivum.app import Listening
    from musivum.nodes.books import Keeper
    from p2p.configuration import HostLimits

READ_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run, and how it speaks."""

    config: MusivumConfig
    identity: Identity
    token: str
    """The operator's; empty for nobody's."""
    json_lines: bool
    until_stdin_closes: bool


async def live(program: Program) -> None:
    """Run until a signal, or the end of standard input. Raises whatever ends it before.

    No port is open before the store is ours: a musivum that stands by answers nobody.
    """
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_on_signal, signals, nursery.cancel_scope)
            if program.until_stdin_closes:
                nursery.start_soon(_stop_with_stdin, nursery.cancel_scope)
            async with _store(program) as store:
                await _serve(program, store)


def _store(program: Program) -> AbstractAsyncContextManager[Keeper]:
    # The database's library takes a while to import, and neither --help nor a wrong flag needs it.
    from musivum.store import open_store

    if program.config.bootstrap_only:
        return _kept_in_memory()
    return open_store(program.config.database, wait=partial(_say_standby, program.json_lines))


@asynccontextmanager
async def _kept_in_memory() -> AsyncIterator[Keeper]:
    from musivum.store.memory import MemoryStore

    yield MemoryStore()


async def _serve(program: Program, store: Keeper) -> None:
    from musivum.app import serve
    from musivum.settings.reach import settled
    from p2p.host import open_host
    from p2p.supervisor import supervise

    config = settled(program.config)

    async def once() -> None:
        host = open_host(
            program.identity,
            listen=config.listen,
            limits=_limits(config),
            announce=config.announce,
            allow_private=config.allow_private,
        )
        async with host as opened, trio.open_nursery() as serving:
            start = partial(
                serve,
                opened,
                program.identity,
                config,
                store=store,
                clock=time.time,
                token=program.token,
            )
            _say_ready(await serving.start(start), program.json_lines)
            spare_the_collector()

    # Another start would listen on another port, where nobody looks for it.
    await (once() if _takes_a_free_port(config) else supervise(once))


def _limits(config: MusivumConfig) -> HostLimits:
    from p2p.configuration import MUSIVUM_LIMITS
    from p2p.gates import exempting

    inbound = exempting(MUSIVUM_LIMITS.inbound, config.allow_private)
    inbound = replace(inbound, exempt=(*(inbound.exempt or ()), *config.exempt))
    return replace(MUSIVUM_LIMITS, connections=config.max_connections, inbound=inbound)


def _takes_a_free_port(config: MusivumConfig) -> bool:
    return any(addr.endswith("/tcp/0") for addr in config.listen) or any(
        addr.endswith(":0") for addr in config.http
    )


def _say_standby(json_lines: bool) -> None:
    line = json.dumps({"event": "standby"})
    typer.echo(line if json_lines else "musivum stands by: another one has the database")
    sys.stdout.flush()
    # There is time now, and none when the other one dies: libp2p alone takes a second.
    import p2p.host  # noqa: F401


def _say_ready(listening: Listening, json_lines: bool) -> None:
    peer = listening.peer
    addrs = [*peer.full(), *listening.http]
    if json_lines:
        ready = {
            "event": "ready",
            "peer_id": peer.peer_id,
            "addrs": peer.full(),
            "http": listening.http,
        }
        typer.echo(json.dumps(ready))
    else:
        typer.echo("\n  ".join((f"musivum {peer.peer_id} listens on", *addrs)))
    sys.stdout.flush()


async def _stop_on_signal(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()


async def _stop_with_stdin(scope: trio.CancelScope) -> None:
    # Not through sys.stdin: an interpreter that ends while a thread holds its lock aborts.
    read: Callable[[], bytes] = partial(os.read, 0, READ_BYTES)
    # The stubs that libp2p brings along are older than this argument.
    wait = partial(trio.to_thread.run_sync, read, abandon_on_cancel=True)  # type: ignore[call-arg, unused-ignore]
    while await wait():
        pass
    scope.cancel()
