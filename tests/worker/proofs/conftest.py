"""Work for tickets, as the book of a node gets it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tessella.core.commitments import Rows
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.messages import Ticket, TicketStage
from tessella.core.shapes import DType
from tessella.core.tickets import ANONYMOUS, seal_ticket
from tessella.worker.proofs import book
from tessella.worker.proofs.witness import NOBODY, Bill, Came, Ticketing

MUSIVUM = Identity(b"m" * 32)
WORKER = Identity(b"w" * 32)
LAYERS = LayerRange(0, 6)


def rows(count: int, salt: int) -> Rows:
    made = Rows()
    made.put(0, bytes([salt]) * 8 * count, count)
    return made


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The book writes in the loop, so that a virtual clock stands still while it does."""

    async def here(work: Callable[[], Any], limiter: trio.CapacityLimiter) -> Any:
        async with limiter:
            return work()

    monkeypatch.setattr(book, "in_thread", here)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "node.proofs.db"


@pytest.fixture(scope="session")
def worker() -> Identity:
    return WORKER


@pytest.fixture(scope="session")
def musivum_key() -> Identity:
    return MUSIVUM


def a_ticket_for(number: int) -> Ticket:
    """The ticket of a request, whose chain is this node alone."""
    return Ticket(
        issuer=MUSIVUM.peer_id,
        request_id=number.to_bytes(16, "big"),
        model=ModelId("toy"),
        contract="contract",
        requester=ANONYMOUS,
        tier="leech",
        chain=(TicketStage(WORKER.peer_id, LAYERS, ""),),
        spares=(),
        max_tokens=64,
        issued_at=1_000.0,
        start_by=1_300.0,
        expires_at=4_600.0,
    )


def ticketing_for(number: int) -> Ticketing:
    """The same, as a stage's part in it."""
    ticket = a_ticket_for(number)
    payload, signature = seal_ticket(ticket, MUSIVUM)
    return Ticketing(payload, signature, ticket.request_id, LAYERS, DType.F32)


def a_bill_for(number: int, *, start: int = 3, stop: int = 10, sketch: bytes = b"") -> Bill:
    """Of ten positions, of which the first three were there before."""
    return Bill(
        ticketing=ticketing_for(number),
        start=start,
        inputs=rows(stop, 1).commit(),
        came=Came(0, NOBODY, b""),
        outputs=rows(stop, 2).commit(),
        sketch=sketch,
    )


@pytest.fixture(scope="session")
def a_ticket() -> Callable[[int], Ticket]:
    return a_ticket_for


@pytest.fixture(scope="session")
def a_ticketing() -> Callable[[int], Ticketing]:
    return ticketing_for


@pytest.fixture(scope="session")
def a_bill() -> Callable[..., Bill]:
    return a_bill_for
