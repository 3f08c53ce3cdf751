"""A worker of `settlement_chaos.py`: the book and the uploader of a node, and sessions of nobody.

    python -m benchmarks.settlement_chaos_side --place 0 --home DIR --musivum ADDR --key FILE ...

It serves request 0, 1, 2, ... of a chain of three, in the same rows as its neighbours, and goes on
after a restart where its book ends: so in the end all three have served the same requests, and each
of their proofs is to be paid in full.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from functools import partial
from pathlib import Path

import trio

from p2p.host import open_host
from tessella.core.addresses import PeerAddress, parse_peer
from tessella.core.commitments import Rows
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.messages import Ticket, TicketStage
from tessella.core.shapes import DType
from tessella.core.tickets import ANONYMOUS, START_SECONDS, TICKET_SECONDS, seal_ticket
from tessella.core.vouchers import Sent, crossing_at, vouch
from tessella.keys import load_or_create_key
from tessella.worker.proofs import book as books
from tessella.worker.proofs.book import ProofBook, open_book
from tessella.worker.proofs.upload import Uploader
from tessella.worker.proofs.witness import NOBODY, Bill, Came, Ticketing
from tessella.worker.tracker import Tracker

STAGES = 3
LAYERS_EACH = 2
# Of a request, by its number: so few that no worker comes near to what may be minted in a day.
MOST_POSITIONS = 8
ROW_BYTES = 16
# Seconds between two sessions, on average.
PACE = 0.1
CHECKPOINT_SECONDS = 2.0
# Names a file with the number of the request before which to stop.
LAST = "last"
LOOK_SECONDS = 0.05


def worker_of(place: int) -> Identity:
    """The key of the worker at a place of the chain."""
    return Identity(bytes([place + 1]) * 32)


def positions_of(number: int) -> int:
    """How many positions a request has."""
    return 1 + number % MOST_POSITIONS


def bill_of(number: int, place: int, musivum: Identity, issued_at: float) -> Bill:
    """What one stage did for a request."""
    stages = tuple(
        TicketStage(worker_of(k).peer_id, LayerRange(k * LAYERS_EACH, (k + 1) * LAYERS_EACH), "")
        for k in range(STAGES)
    )
    ticket = Ticket(
        issuer=musivum.peer_id,
        request_id=number.to_bytes(16, "big"),
        model=ModelId("chaos"),
        contract="chaos",
        requester=ANONYMOUS,
        tier="leech",
        chain=stages,
        spares=(),
        max_tokens=MOST_POSITIONS,
        issued_at=issued_at,
        start_by=issued_at + START_SECONDS,
        expires_at=issued_at + TICKET_SECONDS,
    )
    payload, signature = seal_ticket(ticket, musivum)
    layers, inputs, sender, voucher = stages[place].layers, _rows(number, place), NOBODY, b""
    if place:
        before, crossing = worker_of(place - 1), crossing_at(payload, 0, layers.start)
        sender = before.peer_id
        voucher = vouch(before, crossing, Sent(0, inputs.commit()))
    return Bill(
        ticketing=Ticketing(payload, signature, ticket.request_id, layers, DType.F32),
        start=0,
        inputs=inputs.commit(),
        came=Came(0, sender, voucher),
        outputs=_rows(number, place + 1).commit(),
        sketch=b"",
    )


def _rows(number: int, edge: int) -> Rows:
    count, made = positions_of(number), Rows()
    made.put(0, f"{number}.{edge}".encode().ljust(ROW_BYTES) * count, count)
    return made


async def serve(book: ProofBook, options: argparse.Namespace, musivum: Identity) -> None:
    """One session after the other, up to the last one, if there is a last one."""
    chance, last = random.Random(), options.home / LAST
    while True:
        number = book.totals.sessions
        if last.exists() and number >= int(last.read_text()):
            await trio.sleep(LOOK_SECONDS)
            continue
        await book.serve(bill_of(number, options.place, musivum, options.issued_at))
        await trio.sleep(chance.expovariate(1 / PACE))


async def _end_with_stdin(scope: trio.CancelScope) -> None:
    # The stubs that libp2p brings along are older than this argument.
    read = partial(trio.to_thread.run_sync, os.read, 0, 1, abandon_on_cancel=True)  # type: ignore[call-arg, unused-ignore]
    await read()
    scope.cancel()


async def live(options: argparse.Namespace) -> None:
    """Serve and bring proofs until standard input ends."""
    identity = worker_of(options.place)
    musivum, address = load_or_create_key(options.key), parse_peer(options.musivum)
    async with (
        open_host(identity, listen=[]) as host,
        open_book(options.home / "node.proofs.db", identity) as book,
        trio.open_nursery() as nursery,
    ):
        tracker = Tracker(host, identity, [PeerAddress(address.peer_id, address.addrs)])
        nursery.start_soon(book.run, CHECKPOINT_SECONDS)
        nursery.start_soon(Uploader(book, tracker.settle).run)
        nursery.start_soon(serve, book, options, musivum)
        nursery.start_soon(_end_with_stdin, nursery.cancel_scope)
        print(json.dumps({"event": "ready", "peer_id": identity.peer_id}), flush=True)


def main() -> int:
    """Live, by the flags."""
    # All of them are looked at in the end.
    books.KEEP_SETTLED = sys.maxsize
    parser = argparse.ArgumentParser()
    parser.add_argument("--place", type=int, required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--musivum", required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--issued-at", type=float, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--until-stdin-closes", action="store_true")
    trio.run(live, parser.parse_args())
    return 0


if __name__ == "__main__":
    sys.exit(main())
