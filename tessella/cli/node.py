"""A node as a program: its signals, its standard input, and its events for whoever watches."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import trio

from tessella.catalogue import models_directory
from tessella.cli.extras import worker_extra
from tessella.cli.model_cache import prune, used
from tessella.cli.render import Document, LoadingBars
from tessella.cli.signals import Interrupts, gone_with_stdin, stdin_closed, stdin_said
from tessella.collector import spare_the_collector
from tessella.core.errors import TessellaError
from tessella.core.identity import Identity
from tessella.worker.config import WorkerConfig

logger = logging.getLogger(__name__)

NAME = "node"
# What a node that was told to stop may take for its goodbye, or to give up joining: beside the time
# that its sessions have to finish.
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
    """Run a node until a signal, or the end of standard input, tells it to stop.

    Told by the first signal, it lets its sessions finish; the next one ends it at once, and so does
    the end of standard input, whose other end had the sessions.
    """
    # torch and libp2p take seconds to import, and neither --help nor a wrong flag needs them.
    with gone_with_stdin(manners.until_stdin_closes), worker_extra():
        from p2p.configuration import WORKER_LIMITS
        from p2p.host import open_host
        from p2p.supervisor import supervise
        from tessella.engine.compute import open_compute
        from tessella.worker.ground import Ground
        from tessella.worker.node import run_node
    # Before there are a host and a shard: of those, what dies has to be given back.
    spare_the_collector()

    ending = Ending(config.drain_seconds)
    stop, scope = ending.stop, ending.scope
    interrupts.first_goes_to(stop.set)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ending.run)
        with scope, used(config.weights), LoadingBars() as bars:
            if manners.join_after_stdin and not await stdin_said():
                stop.set()
            if manners.until_stdin_closes:
                nursery.start_soon(ending.hurry_with_stdin)
            shown = tell_json if manners.as_json else tell_people(bars)

            def tell(event: Document) -> None:
                ending.has_joined = True
                shown(event)
                if event["event"] == "ready":
                    nursery.start_soon(tidy_up, config)

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


async def tidy_up(config: WorkerConfig) -> None:
    """Have the model cache pruned as the operator wants it; what fails is told, and no more."""
    directory, mode = config.models_dir or models_directory(), config.model_cache_prune
    try:
        await trio.to_thread.run_sync(prune, directory, config.weights, mode, logger.info)
    except TessellaError as exc:
        logger.warning("the model cache was not pruned: %s", exc)


class Ending:
    """How a node ends that was told to: within its time, however far it is."""

    def __init__(self, drain_seconds: float) -> None:
        self.stop = trio.Event()
        self.scope = trio.CancelScope()
        """Around all of the node; cancelled when its time is up."""
        self.has_joined = False
        """Whether there may be sessions to wait for."""
        self._drain_seconds = drain_seconds
        self._hurry = trio.Event()

    async def run(self) -> None:
        """Wait until the node is to stop, and see that it does."""
        await self.stop.wait()
        if self.has_joined:
            with trio.move_on_after(self._drain_seconds):
                await self._hurry.wait()
        await trio.sleep(STOP_SECONDS)
        self.scope.cancel()

    async def hurry_with_stdin(self) -> None:
        """Stop with the end of standard input, and wait for no session."""
        await stdin_closed()
        self._hurry.set()
        self.stop.set()


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
