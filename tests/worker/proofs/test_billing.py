from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tessella.core.errors import StoreUnavailable
from tessella.core.identity import Identity
from tessella.core.ids import SessionId
from tessella.core.layers import LayerRange
from tessella.core.messages import Open, Proof, Stage, Ticket, decode_sealed
from tessella.core.tickets import seal_ticket
from tessella.core.vouchers import Sent, check_voucher, crossing_at
from tessella.worker.proofs.billing import Billing
from tessella.worker.proofs.book import HOLD_SECONDS, ProofBook, open_book
from tessella.worker.proofs.witness import Bill, Ticketing, Witness

LAYERS = LayerRange(0, 6)
OTHER = Identity(b"o" * 32)
MakeTicket = Callable[[int], Ticket]


@dataclass
class FakeStage:
    """Of a stage, what is billed."""

    witness: Witness | None


@dataclass
class StubBook:
    """Writes down bills, unless it is full."""

    is_full: bool = False
    bills: list[tuple[Bill, float]] = field(default_factory=list)
    pace: float = 0.0

    def check_writable(self) -> None:
        if self.is_full:
            raise StoreUnavailable("full")

    async def serve(self, bill: Bill, *, hold: float = 0.0) -> None:
        await trio.sleep(self.pace)
        self.check_writable()
        self.bills.append((bill, hold))


@pytest.fixture
def stub() -> StubBook:
    return StubBook()


@pytest.fixture
def opened(a_ticket: MakeTicket, musivum_key: Identity, worker: Identity) -> Open:
    payload, signature = seal_ticket(a_ticket(1), musivum_key)
    return Open(
        session_id=SessionId(b"session of tests"),
        epoch=0,
        model=a_ticket(1).model,
        contract="contract",
        dtype="f32",
        chain=(Stage(worker.peer_id, LAYERS),),
        place=0,
        capacity=64,
        prompt=b"",
        sampling=b"{}",
        entry_addrs=(),
        entry_url="",
        grant=b"",
        grant_signature=b"",
        ticket=payload,
        ticket_signature=signature,
    )


def billing_of(book: Any, **more: Any) -> Billing:
    return Billing(book, **more)


def a_step(witness: Witness | None, position: int = 0, count: int = 4) -> None:
    assert witness is not None
    given = torch.ones(count, 2)
    witness.saw(position, count, bytes(4 * count), given.numpy().tobytes(), given)


async def test_work_for_a_ticket_is_billed_once(
    stub: StubBook, opened: Open, a_ticket: MakeTicket
) -> None:
    billing = billing_of(stub)
    stage = FakeStage(billing.witness(opened, a_ticket(1)))
    await billing.bill(stage)  # type: ignore[arg-type]
    assert stub.bills == []
    a_step(stage.witness)
    for _ in range(2):
        await billing.bill(stage)  # type: ignore[arg-type]
    ((bill, hold),) = stub.bills
    assert (bill.positions, hold) == (4, 0.0)
    assert bill.ticketing.ticket == opened.ticket


async def test_nobody_sees_what_nobody_pays(
    stub: StubBook, opened: Open, a_ticket: MakeTicket
) -> None:
    assert billing_of(stub).witness(opened, None) is None
    assert Billing().witness(opened, a_ticket(1)) is None
    others = replace(opened, chain=(Stage(OTHER.peer_id, LAYERS),))
    assert billing_of(stub).witness(others, a_ticket(1)) is None
    unpaid = FakeStage(None)
    await billing_of(stub).bill(unpaid)  # type: ignore[arg-type]


async def test_who_is_not_paid_vouches_for_its_rows_to_who_may_be(
    stub: StubBook, opened: Open, a_ticket: MakeTicket, worker: Identity
) -> None:
    chain = (Stage(worker.peer_id, LAYERS), Stage(OTHER.peer_id, LayerRange(6, 12)))
    middle = replace(opened, chain=chain)
    for book, ticket in ((None, a_ticket(1)), (stub, None), (None, None)):
        witness = Billing(book, identity=worker).witness(middle, ticket)  # type: ignore[arg-type]
        a_step(witness)
        assert witness is not None
        assert not witness.owes
        sent = Sent(0, witness.bill().outputs)
        check_voucher(worker.peer_id, crossing_at(opened.ticket, 0, 6), sent, witness.voucher)
        stub.is_full = True
    assert Billing(identity=worker).witness(replace(middle, ticket=b""), None) is None
    assert Billing(identity=worker).witness(replace(middle, place=1), None) is None


async def test_the_last_stage_vouches_for_nothing(
    stub: StubBook, opened: Open, a_ticket: MakeTicket, worker: Identity
) -> None:
    witness = billing_of(stub, identity=worker).witness(opened, a_ticket(1))
    a_step(witness)
    assert witness is not None
    assert witness.voucher == b""


async def test_no_work_begins_that_could_not_be_proved(
    stub: StubBook, opened: Open, a_ticket: MakeTicket
) -> None:
    stub.is_full = True
    with pytest.raises(StoreUnavailable):
        billing_of(stub).witness(opened, a_ticket(1))
    # What nobody pays needs no disk.
    assert billing_of(stub).witness(opened, None) is None


async def test_a_bill_that_was_not_written_is_owed_still(
    stub: StubBook, opened: Open, a_ticket: MakeTicket
) -> None:
    billing = billing_of(stub)
    stage = FakeStage(billing.witness(opened, a_ticket(1)))
    a_step(stage.witness)
    stub.is_full = True
    with pytest.raises(StoreUnavailable):
        await billing.bill(stage)  # type: ignore[arg-type]
    stub.is_full = False
    await billing.bill(stage)  # type: ignore[arg-type]
    assert len(stub.bills) == 1


async def test_a_session_that_is_cancelled_is_billed_to_the_end(
    stub: StubBook, opened: Open, a_ticket: MakeTicket, autojump_clock: MockClock
) -> None:
    billing, stub.pace = billing_of(stub), 1.0
    stage = FakeStage(billing.witness(opened, a_ticket(1)))
    a_step(stage.witness)
    with trio.CancelScope() as scope:
        scope.cancel()
        await billing.bill(stage)  # type: ignore[arg-type]
    assert len(stub.bills) == 1
    assert stage.witness is not None
    assert not stage.witness.owes


async def test_what_ended_unbilled_is_billed_later_and_held(
    stub: StubBook, opened: Open, a_ticket: MakeTicket, autojump_clock: MockClock
) -> None:
    billing = billing_of(stub)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(billing.run)
        stub.is_full = True
        for _ in range(2):
            witness = billing.witness(opened, None) or _unchecked(billing, stub, opened, a_ticket)
            a_step(witness)
            witness.end()
        await trio.sleep(5.0)
        assert stub.bills == []
        stub.is_full = False
        await trio.sleep(2.0)
        assert [(bill.positions, hold) for bill, hold in stub.bills] == [(4, HOLD_SECONDS)] * 2
        nursery.cancel_scope.cancel()


def _unchecked(billing: Billing, stub: StubBook, opened: Open, a_ticket: MakeTicket) -> Witness:
    """A witness of a session that began before the disk was full."""
    was, stub.is_full = stub.is_full, False
    witness = billing.witness(opened, a_ticket(1))
    stub.is_full = was
    assert witness is not None
    return witness


async def test_only_the_entry_keeps_token_ids(
    stub: StubBook, opened: Open, a_ticket: MakeTicket, worker: Identity
) -> None:
    asked: list[tuple[str, Ticketing]] = []
    billing = billing_of(
        stub,
        keep_outputs=lambda ticketing: asked.append(("outputs", ticketing)),
        keep_ids=lambda ticketing: asked.append(("ids", ticketing)),
    )
    billing.witness(opened, a_ticket(1))
    first = Stage(OTHER.peer_id, LayerRange(0, 3))
    behind = replace(opened, chain=(first, Stage(worker.peer_id, LAYERS)), place=1)
    billing.witness(behind, a_ticket(1))
    assert [what for what, _ in asked] == ["outputs", "ids", "outputs"]
    assert asked[0][1].request_id == a_ticket(1).request_id


@pytest.fixture
async def real(path: Path, worker: Identity, inline: None) -> AsyncIterator[ProofBook]:
    async with open_book(path, worker) as book:
        yield book


async def test_a_session_that_begins_anew_is_paid_for_the_second_time(
    real: ProofBook, opened: Open, a_ticket: MakeTicket, autojump_clock: MockClock
) -> None:
    billing = Billing(real)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(billing.run)
        first = billing.witness(opened, a_ticket(1))
        assert first is not None
        a_step(first)
        first.end()
        await wait_all_tasks_blocked()
        assert real.totals.layer_positions == 4 * 6
        second = FakeStage(billing.witness(opened, a_ticket(1)))
        a_step(second.witness, count=30)
        await billing.bill(second)  # type: ignore[arg-type]
        assert (real.totals.sessions, real.totals.layer_positions) == (1, 30 * 6)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("looks", [0, 9])
async def test_a_bill_is_held_for_as_long_as_its_session_goes_on_anew(
    real: ProofBook, opened: Open, a_ticket: MakeTicket, looks: int, autojump_clock: MockClock
) -> None:
    """Whether or not anybody looked for what is due meanwhile."""
    billing = Billing(real)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(billing.run)
        first = billing.witness(opened, a_ticket(1))
        a_step(first)
        assert first is not None
        first.end()
        second = FakeStage(billing.witness(replace(opened, epoch=1), a_ticket(1)))
        for _ in range(looks):
            await trio.sleep(10 * HOLD_SECONDS)
            assert await real.due(9, 1 << 20) == []
        await trio.sleep(10 * HOLD_SECONDS)
        a_step(second.witness, count=30)
        await billing.bill(second)  # type: ignore[arg-type]
        (owed,) = await real.due(9, 1 << 20)
        assert decode_sealed(owed.proof.payload, Proof).outputs.stop == 30
        nursery.cancel_scope.cancel()


async def test_a_bill_whose_session_does_not_begin_anew_is_held_no_longer(
    real: ProofBook, opened: Open, a_ticket: MakeTicket, autojump_clock: MockClock
) -> None:
    billing = Billing(real)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(billing.run)
        first, other = (billing.witness(opened, a_ticket(number)) for number in (1, 2))
        a_step(first)
        assert first is not None
        first.end()
        await trio.sleep(HOLD_SECONDS - 1)
        assert await real.due(9, 1 << 20) == []
        await trio.sleep(2)
        (owed,) = await real.due(9, 1 << 20)
        assert decode_sealed(owed.proof.payload, Proof).outputs.stop == 4
        assert other is not None
        nursery.cancel_scope.cancel()
