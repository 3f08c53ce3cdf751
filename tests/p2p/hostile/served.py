"""A node under attack, and the honest peer that must not notice."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import trio

from p2p.configuration import WORKER_LIMITS, HostLimits
from p2p.host import Libp2pHost, open_host
from p2p.streams import FrameStream
from tessella.core.identity import Identity
from tessella.core.ids import SessionId
from tessella.core.messages import COMPLETE, HOP, STATUS, TOKENS, TRACKER, Cancel

LOOPBACK = "/ip4/127.0.0.1/tcp/0"
PROTOCOLS = (HOP, TOKENS, COMPLETE, STATUS, TRACKER)
# Served by a handler that never reads.
IDLE = "/tests/idle/1"
SECONDS = 10.0
# The honest peer asks so often, and waits so long before it calls the node dead.
PAUSE = 0.02
PATIENCE = 3.0
# What holds for strangers holds for this machine as well.
STRICT = replace(WORKER_LIMITS, inbound=replace(WORKER_LIMITS.inbound, exempt=()))
MIB = 1024 * 1024


def rss_mib() -> float:
    """Resident memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


def descriptors() -> int:
    """Open files of this process."""
    return len(os.listdir("/proc/self/fd"))


def tasks() -> int:
    """Living tasks of this loop."""
    return trio.lowlevel.current_statistics().tasks_living


def figures(name: str, **values: object) -> None:
    """One line of what a test measured; `pytest -s` shows it."""
    shown = (
        f"{key}={v:.3g}" if isinstance(v, float) else f"{key}={v}" for key, v in values.items()
    )
    print(f"\n{name} {' '.join(shown)}", flush=True)  # noqa: T201 - that is what it is for


@dataclass
class Attack:
    """A server, an honest client that is served all the time, and what it saw."""

    server: Libp2pHost
    client: Libp2pHost
    seconds: list[float] = field(default_factory=list)

    async def ask(self, number: int) -> None:
        """One honest question. Raises what a broken node would make it raise."""
        peer = self.server.address.peer_id
        started = trio.current_time()
        async with await self.client.open_stream(peer, STATUS, timeout=PATIENCE) as stream:
            message = Cancel(SessionId(bytes(16)), number)
            await stream.send(message, PATIENCE)
            assert await stream.receive(PATIENCE) == message
        self.seconds.append(trio.current_time() - started)

    async def keep_asking(self) -> None:
        """Questions on streams of their own, until cancelled."""
        while True:
            await self.ask(len(self.seconds))
            await trio.sleep(PAUSE)

    @property
    def p95_ms(self) -> float:
        """What the honest peer waited."""
        return 1000 * sorted(self.seconds)[len(self.seconds) * 95 // 100]

    async def newcomer(self, seed: int = 200) -> float:
        """Seconds that an honest peer, never seen before, takes to connect and be answered."""
        started = trio.current_time()
        async with open_host(Identity(bytes([seed]) * 32), listen=[]) as client:
            await client.connect(self.server.address, timeout=PATIENCE)
            await Attack(self.server, client).ask(0)
            return trio.current_time() - started


async def echo(stream: FrameStream) -> None:
    """Send back what comes."""
    while True:
        await stream.send(await stream.receive())


async def never_read(stream: FrameStream) -> None:
    """Hold a stream."""
    await trio.sleep_forever()


@asynccontextmanager
async def under_attack(limits: HostLimits = STRICT) -> AsyncIterator[Attack]:
    """A node with every protocol of ours, and an honest peer before, during and after."""
    async with (
        open_host(Identity(b"s" * 32), listen=[LOOPBACK], limits=limits) as server,
        open_host(Identity(b"c" * 32), listen=[]) as client,
        trio.open_nursery() as nursery,
    ):
        for protocol in PROTOCOLS:
            server.serve(protocol, echo, streams=128, per_peer=64)
        server.serve(IDLE, never_read, streams=128, per_peer=64)
        await client.connect(server.address, timeout=SECONDS)
        attack = Attack(server, client)
        await attack.ask(0)
        nursery.start_soon(attack.keep_asking)
        yield attack
        asked = len(attack.seconds)
        with trio.fail_after(PATIENCE):
            while len(attack.seconds) < asked + 3:  # noqa: ASYNC110 - it counts, it has no event
                await trio.sleep(PAUSE)
        nursery.cancel_scope.cancel()
