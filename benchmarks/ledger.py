"""What the ledger of a musivum bears: proofs settled a second, and reading all of it.

    python benchmarks/ledger.py --json
    python benchmarks/ledger.py --json --small

Every proof is verified, with its ticket, and every batch is on the disk (SQLite, synchronous FULL)
before it is answered. Requests have chains of three stages, and all three prove.

settlements_per_s         batches of 100, one after the other, on one core
route_settlements_per_s   the same by POST /api/v1/work_done_batch, ROUTE_AT_ONCE under way, musivum
                          on one core
page_ms_p99               for a page of 1000 entries, of a ledger of a million (--small: fewer)
inclusion_ms_p99          for the proof of one entry of it
rss_mb                    the most resident memory of the process that read all of it

Exit 0 if every proof was paid and every entry read, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgpack
import trio
from sqlalchemy import Connection

from benchmarks.ledger_work import some_proofs
from musivum.ledger import Draft, Ledger
from musivum.store import open_store
from tessella.core.fields import to_plain
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.ledger import MINT, Entry, Line, seal_entry
from tessella.core.proofs import SignedProof
from tessella.core.settlement import Became, Outcome

SIDE = Path(__file__).with_name("ledger_side.py")
ROUTE = "/api/v1/work_done_batch"
BATCH = 100
ROUTE_AT_ONCE = 4
# Of one transaction, while a ledger is made up.
MADE_AT_ONCE = 10_000
ANSWER_SECONDS = 60.0
PAYEES = 100


@dataclass
class Result:
    """The figures."""

    settlements_per_s: float = 0.0
    route_settlements_per_s: float = 0.0
    page_ms_p99: float = 0.0
    inclusion_ms_p99: float = 0.0
    rss_mb: float = 0.0
    settlements: int = 0
    route_settlements: int = 0
    entries: int = 0
    unpaid: int = 0
    cpu_us_per_settlement: float = 0.0


def batches(proofs: Sequence[SignedProof]) -> Iterator[Sequence[SignedProof]]:
    """In the order in which they were made: a chain may be cut."""
    for first in range(0, len(proofs), BATCH):
        yield proofs[first : first + BATCH]


@contextmanager
def one_core() -> Iterator[int]:
    """This process is held to a core, which is named."""
    cores = os.sched_getaffinity(0)
    core = min(cores)
    os.sched_setaffinity(0, {core})
    try:
        yield core
    finally:
        os.sched_setaffinity(0, cores)


async def settle(identity: Identity, directory: str, result: Result) -> None:
    """Settle proofs as fast as it goes."""
    proofs = list(some_proofs(identity, result.settlements, time.time()))
    async with open_store(f"sqlite:///{directory}/settled.db") as store:
        ledger = Ledger(identity, store, time.time)
        began, cpu = time.perf_counter(), time.process_time()
        for batch in batches(proofs):
            result.unpaid += count_refused(await ledger.settle(batch))
        result.settlements_per_s = rate(len(proofs), began)
        used = (time.process_time() - cpu) * 1e6 / len(proofs)
        result.cpu_us_per_settlement = round(used, 1)
        result.unpaid += abs(len(proofs) - await ledger.size())
        await ledger.check()


def count_refused(outcomes: Sequence[Outcome]) -> int:
    """How many of these are neither paid nor wait for the rest of their chain."""
    return sum(outcome.became not in (Became.PAID, Became.WAITING) for outcome in outcomes)


def rate(count: int, began: float) -> float:
    """So many since then, a second."""
    return round(count / (time.perf_counter() - began), 1)


@contextmanager
def a_musivum(identity: Identity, core: int) -> Iterator[str]:
    """The URL of a musivum on a core of its own."""
    argv = [sys.executable, str(SIDE), "serve", str(core), identity.seed.hex()]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("musivum ended")
        try:
            yield str(json.loads(line)["http"])
        finally:
            process.stdin.close()


async def settle_by_route(identity: Identity, url: str, result: Result) -> None:
    """Bring proofs to a musivum over HTTP."""
    proofs = list(some_proofs(identity, result.route_settlements, time.time()))
    bodies = iter([body_of(batch) for batch in batches(proofs)])
    refused: list[str] = []

    async def bring(client: httpx.AsyncClient) -> None:
        for body in bodies:
            answer = await client.post(
                url + ROUTE, content=body, headers={"content-type": "application/json"}
            )
            answer.raise_for_status()
            became = [each["became"] for each in answer.json()["outcomes"]]
            refused.extend(each for each in became if each not in ("paid", "waiting"))

    began = time.perf_counter()
    async with (
        httpx.AsyncClient(trust_env=False, timeout=ANSWER_SECONDS) as client,
        trio.open_nursery() as nursery,
    ):
        for _ in range(ROUTE_AT_ONCE):
            nursery.start_soon(bring, client)
    result.route_settlements_per_s = rate(len(proofs), began)
    result.unpaid += len(refused)


def body_of(batch: Sequence[SignedProof]) -> bytes:
    """The body of the route."""
    proofs = [
        {"payload": b64encode(each.payload).decode(), "signature": each.signature.hex()}
        for each in batch
    ]
    return json.dumps({"proofs": proofs}).encode()


async def make_up(identity: Identity, path: str, count: int) -> None:
    """A ledger of so many payments, whose proofs nobody saw."""
    payees = [Identity(secrets.token_bytes(32)).peer_id for _ in range(PAYEES)]
    async with open_store(f"sqlite:///{path}") as store:
        for first in range(0, count, MADE_AT_ONCE):

            def work(connection: Connection, left: int = count - first) -> None:
                draft = Draft(connection, identity.peer_id, time.time())
                for _ in range(min(left, MADE_AT_ONCE)):
                    entry = a_payment(draft, payees[draft.size % PAYEES])
                    draft.put(entry, packed(entry))
                draft.write()

            await store.transact(work)


def a_payment(draft: Draft, worker: PeerId) -> Entry:
    """The next entry."""
    return Entry(
        origin=draft.origin,
        sequence=draft.size,
        previous=draft.last,
        kind="payment",
        at=draft.now,
        issuer=draft.origin,
        request_id=draft.size.to_bytes(16, "big"),
        worker=worker,
        lines=(Line(worker, 1_000_000), Line(MINT, -1_000_000)),
    )


def packed(entry: Entry) -> bytes:
    """What `seal_entry` gives, without its checks for most of them."""
    if entry.sequence % MADE_AT_ONCE == 0:
        return seal_entry(entry)
    payload: bytes = msgpack.packb(to_plain(entry), use_bin_type=True)
    return payload


def read_all(identity: Identity, path: str, result: Result) -> None:
    """Read it in another process."""
    argv = [sys.executable, str(SIDE), "page", path, identity.seed.hex()]
    ran = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    said = json.loads(ran.stdout)
    result.page_ms_p99 = said["page_ms_p99"]
    result.inclusion_ms_p99 = said["inclusion_ms_p99"]
    result.rss_mb = said["rss_mb"]
    result.unpaid += result.entries - said["read"]


def measure(result: Result) -> None:
    """All figures, one after the other."""
    identity = Identity(secrets.token_bytes(32))
    with tempfile.TemporaryDirectory() as directory:
        with one_core() as core:
            trio.run(settle, identity, directory, result)
        with a_musivum(identity, core) as url:
            trio.run(settle_by_route, identity, url, result)
        path = f"{directory}/long.db"
        trio.run(make_up, identity, path, result.entries)
        read_all(identity, path, result)


def main() -> int:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a few seconds of each")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.small:
        result = Result(settlements=1500, route_settlements=600, entries=10_000)
    else:
        result = Result(settlements=12_000, route_settlements=3000, entries=1_000_000)
    measure(result)
    if given.json:
        print(json.dumps(vars(result)))
    else:
        for name, value in vars(result).items():
            print(f"{name:<24} {value}")
    return 1 if result.unpaid else 0


if __name__ == "__main__":
    sys.exit(main())
