"""A node as a program: its signals, its standard input, and its events for whoever watches."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import trio

from tessella.cli.extras import worker_extra
from tessella.cli.render import Document, LoadingBars
from tessella.cli.signals import Interrupts, gone_with_stdin, stdin_closed, stdin_said
from tessella.core.identity import Identity
from tessella.worker.config import WorkerConfig

NAME = "node"
# What a node that was told to stop may take for its goodbye, or to give up joining.
STOP_SECONDS = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How a node behaves towards whoever started it."""

    as_json: bool
    """Whether its events are lines of JSON on stdout."""
    until_stdin_closes: bool
    """Whether it ends with the other end of its standard input."""
    join_after_stdin: bool
    """Whether it joins only once something is said there: then many start at a time, in order."""


async def serve(
    config: WorkerConfig, identity: Identity, manners: Manners, interrupts: Interrupts
) -> None:
    """Run a node until a signal, or the end of standard input, tells it to stop."""
    # torch and libp2p take seconds to import, and neither --help nor a wrong flag needs them.
    with gone_with_stdin(manners.until_stdin_closes), worker_extra():
        from p2p.configuration import WORKER_LIMITS
        from p2p.host import open_host
        from p2p.supervisor import supervise
        from tessella.engine.compute import open_compute
        from tessella.worker.ground import Ground
        from tessella.worker.node import run_node

    stop = trio.Event()
    interrupts.first_goes_to(stop.set)

    async def stop_with_stdin() -> None:
        await stdin_closed()
        stop.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_give_up, stop, nursery.cancel_scope)
        if manners.join_after_stdin and not await stdin_said():
            nursery.cancel_scope.cancel()
            return
        if manners.until_stdin_closes:
            nursery.start_soon(stop_with_stdin)
        with LoadingBars() as bars:
            tell = tell_json if manners.as_json else tell_people(bars)

            async def once() -> None:
                if stop.is_set():
                    return  # the host died while we left
                async with (
                    open_host(
                        identity,
                        listen=config.listen,
                        limits=WORKER_LIMITS,
                        announce=config.announce,
                        allow_private=config.allow_private,
                    ) as host,
                    open_compute() as compute,
                ):
                    await run_node(config, Ground(identity, host, compute), stop, tell)

            await supervise(once)
        nursery.cancel_scope.cancel()


async def _give_up(stop: trio.Event, scope: trio.CancelScope) -> None:
    await stop.wait()
    await trio.sleep(STOP_SECONDS)
    scope.cancel()


def tell_json(event: Document) -> None:
    """An event as a line of JSON on stdout, for the program that started us."""
    # That it is gone is said by our standard input; an event is no place to fail.
    with suppress(BrokenPipeError):
        print(json.dumps(event), flush=True)


def tell_people(bars: LoadingBars) -> Callable[[Document], None]:
    """Events as bars, and a line each for what stays true."""

    def tell(event: Document) -> None:
        bars.note(NAME, event)
        if event["event"] == "ready":
            bars.stop()
            print("\n".join(event["addrs"]), flush=True)

    return tell
