"""The other process of `benchmarks/ledger.py`.

ledger_side.py serve CORE SEED     the real musivum; one JSON line when it listens
ledger_side.py page DATABASE SEED  reads a whole ledger, and says how that went
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import trio

from musivum.app import serve
from musivum.config import MusivumConfig
from musivum.ledger import Ledger
from musivum.store import open_store
from p2p.host import open_host
from tessella.collector import spare_the_collector
from tessella.core.identity import Identity
from tessella.core.ledger import pack_page

LISTEN = "/ip4/127.0.0.1/tcp/0"
LINE_BYTES = 4096
INCLUSIONS = 200


async def be_musivum(core: int, identity: Identity) -> None:
    """Be a musivum until standard input closes."""
    os.sched_setaffinity(0, {core})
    with tempfile.TemporaryDirectory() as directory:
        config = MusivumConfig(
            listen=(LISTEN,), http=("127.0.0.1:0",), data=Path(directory), dial_back=False
        )
        async with (
            open_store(config.database) as store,
            open_host(identity, listen=config.listen) as host,
            trio.open_nursery() as nursery,
        ):
            program = partial(serve, host, identity, config, store=store, clock=time.time)
            listening = await nursery.start(program)
            spare_the_collector()
            say({"http": listening.http[0]})
            while await trio.to_thread.run_sync(os.read, 0, LINE_BYTES):
                pass
            nursery.cancel_scope.cancel()


async def read_all(path: str, identity: Identity) -> None:
    """Read a ledger in pages, and some proofs of it."""
    async with open_store(f"sqlite:///{path}") as store:
        ledger = Ledger(identity, store, time.time)
        read, page_ms = 0, []
        while True:
            began = time.perf_counter()
            page = await ledger.page(since=read)
            pack_page(page)
            page_ms.append((time.perf_counter() - began) * 1000)
            if not page:
                break
            read += len(page)
        rss_mb = round(peak_kb() / 1024, 1)
        proof_ms = []
        for step in range(INCLUSIONS):
            began = time.perf_counter()
            await ledger.inclusion(step * read // INCLUSIONS)
            proof_ms.append((time.perf_counter() - began) * 1000)
        say(
            {
                "read": read,
                "page_ms_p99": round(percentile(page_ms), 2),
                "inclusion_ms_p99": round(percentile(proof_ms), 2),
                "rss_mb": rss_mb,
            }
        )


def percentile(values: list[float]) -> float:
    """What 99 of 100 stay below."""
    return statistics.quantiles(values, n=100, method="inclusive")[98]


def peak_kb() -> int:
    """The most resident memory of this process so far, in KiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def say(document: dict[str, object]) -> None:
    """One line for whoever started us."""
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    what, where, seed = sys.argv[1:]
    me = Identity(bytes.fromhex(seed))
    if what == "serve":
        trio.run(be_musivum, int(where), me)
    else:
        trio.run(read_all, where, me)
