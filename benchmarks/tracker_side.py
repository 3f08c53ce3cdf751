"""The musivum of `benchmarks/tracker.py`: the real program on one core, and its own figures.

It prints one JSON line when it listens, and one for each line that it reads: its memory.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio

from musivum.app import serve
from musivum.config import MusivumConfig
from musivum.store import open_store
from p2p.configuration import MUSIVUM_LIMITS
from p2p.host import open_host
from tessella.collector import spare_the_collector
from tessella.core.identity import Identity

LISTEN = "/ip4/127.0.0.1/tcp/0"
LINE_BYTES = 4096


def rss_kb() -> int:
    """Resident memory of this process, in KiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


async def main(core: int, nodes: int) -> None:
    """Be a musivum until standard input closes."""
    os.sched_setaffinity(0, {core})
    identity = Identity(os.urandom(32))
    limits = replace(MUSIVUM_LIMITS, connections=nodes + 1000)
    with tempfile.TemporaryDirectory() as directory:
        config = MusivumConfig(
            listen=(LISTEN,),
            http=("127.0.0.1:0",),
            data=Path(directory),
            min_vram_mb=0,
            # Only some of the nodes announce themselves, and nobody is at the others' addresses.
            heartbeat_seconds=300.0,
            dial_back=False,
            allow_private_addrs=True,
            max_nodes=nodes + 1000,
        )
        async with (
            open_store(config.database) as store,
            open_host(identity, listen=config.listen, limits=limits) as host,
            trio.open_nursery() as nursery,
        ):
            program = partial(serve, host, identity, config, store=store, clock=time.time)
            listening = await nursery.start(program)
            spare_the_collector()
            say({"addrs": listening.peer.full(), "http": listening.http[0]})
            while await trio.to_thread.run_sync(os.read, 0, LINE_BYTES):
                say({"rss_kb": rss_kb(), "cpu_seconds": time.process_time()})
            nursery.cancel_scope.cancel()


def say(document: dict[str, object]) -> None:
    """One line for whoever started us."""
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), int(sys.argv[2]))
