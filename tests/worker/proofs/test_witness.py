from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
import torch

from tessella.core.commitments import Rows
from tessella.core.errors import BadTensor, LocalError, OutOfTurn
from tessella.core.identity import Identity
from tessella.core.layers import LayerRange
from tessella.core.vouchers import Sent, check_voucher, crossing_at, vouch
from tessella.engine.sketch import sketch
from tessella.worker.proofs.witness import Bill, Came, Kept, Ticketing, Witness

HIDDEN = 8
MakeTicketing = Callable[[int], Ticketing]


@dataclass
class Shelf:
    """Keeps what is put."""

    rows: dict[int, bytes] = field(default_factory=dict)

    def put(self, position: int, data: bytes, count: int) -> None:
        self.rows = {at: row for at, row in self.rows.items() if at < position}
        size = len(data) // count
        for each in range(count):
            self.rows[position + each] = data[each * size : (each + 1) * size]

    def go_on_from(self, before: Kept) -> None:
        assert isinstance(before, Shelf)
        self.rows = dict(before.rows)


def outputs(position: int, count: int, salt: float = 0.0) -> torch.Tensor:
    """Rows that say their positions, and what they are of."""
    grid = torch.arange(count * HIDDEN, dtype=torch.float32).view(count, HIDDEN)
    return grid + position * HIDDEN + salt


def ids(position: int, count: int) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in range(position, position + count))


def step(witness: Witness, position: int, count: int, salt: float = 0.0) -> None:
    given = outputs(position, count, salt)
    witness.saw(position, count, ids(position, count), given.numpy().tobytes(), given)


def committed(stop: int, salt_from: int | None = None) -> Rows:
    """The outputs of positions up to `stop`, with a salt of 0.5 from one position on."""
    made = Rows()
    for at in range(stop):
        salt = 0.5 if salt_from is not None and at >= salt_from else 0.0
        made.put(at, outputs(at, 1, salt).numpy().tobytes(), 1)
    return made


def test_a_bill_binds_to_every_row_however_it_was_cut_into_steps(
    a_ticketing: MakeTicketing,
) -> None:
    whole, pieces = Witness(a_ticketing(1)), Witness(a_ticketing(1))
    step(whole, 0, 40)
    for start in range(0, 36, 12):
        step(pieces, start, 12)
    for position in range(36, 40):
        step(pieces, position, 1)
    assert whole.bill() == pieces.bill()
    assert whole.bill().outputs == committed(40).commit()
    assert (whole.bill().start, whole.bill().positions) == (0, 40)
    assert whole.bill().sketch == sketch(outputs(0, 40), 0) != b""


SENDER = Identity(b"s" * 32)


def a_stage_behind(a_ticketing: MakeTicketing, number: int = 1, epoch: int = 0) -> Witness:
    """The witness of a stage that takes rows of SENDER."""
    of = replace(a_ticketing(number), sender=SENDER.peer_id, epoch=epoch)
    return Witness(replace(of, layers=LayerRange(6, 12)), identity=Identity(b"b" * 32))


def vouched(witness: Witness, stop: int, start: int = 0) -> bytes:
    """What SENDER signs of the ids up to `stop`, in the session of a witness."""
    rows, of = Rows(), witness.ticketing
    rows.put(0, ids(0, stop), stop)
    crossing = crossing_at(of.ticket, of.epoch, of.layers.start)
    return vouch(SENDER, crossing, Sent(start, rows.commit()))


def vouched_step(witness: Witness, position: int, count: int, voucher: bytes) -> None:
    given = outputs(position, count)
    came = ids(position, count)
    witness.saw(position, count, came, given.numpy().tobytes(), given, voucher=voucher)


def test_what_came_is_billed_with_the_voucher_for_all_of_it(a_ticketing: MakeTicketing) -> None:
    witness = a_stage_behind(a_ticketing, epoch=3)
    vouched_step(witness, 0, 4, vouched(witness, 4))
    vouched_step(witness, 4, 1, last := vouched(witness, 5))
    assert witness.bill().came == Came(3, SENDER.peer_id, last)
    crossing, sent = crossing_at(witness.ticketing.ticket, 3, 12), witness.bill().outputs
    own = Identity(b"b" * 32).peer_id
    check_voucher(own, crossing, Sent(0, sent), witness.voucher)


def test_rows_that_their_sender_does_not_vouch_for_change_nothing(
    a_ticketing: MakeTicketing,
) -> None:
    witness = a_stage_behind(a_ticketing)
    vouched_step(witness, 0, 4, vouched(witness, 4))
    before = witness.bill()
    other = a_stage_behind(a_ticketing, epoch=1)
    for position, voucher in (
        (4, b""),
        (4, vouched(witness, 4)),
        (4, vouched(other, 5)),
        (4, vouched(witness, 6)),
        (4, vouched(witness, 5, start=4)),
    ):
        with pytest.raises(BadTensor, match=SENDER.peer_id):
            vouched_step(witness, position, 1, voucher)
    assert witness.bill() == before
    vouched_step(witness, 4, 1, vouched(witness, 5))
    assert witness.bill().inputs.stop == witness.bill().outputs.stop == 5


def test_a_session_that_goes_on_keeps_the_voucher_for_what_came_within_its_ticket(
    a_ticketing: MakeTicketing,
) -> None:
    first = a_stage_behind(a_ticketing)
    vouched_step(first, 0, 4, last := vouched(first, 4))
    second = a_stage_behind(a_ticketing, epoch=1)
    second.go_on_from(first)
    assert second.bill().came == Came(0, SENDER.peer_id, last)
    third = a_stage_behind(a_ticketing, number=2, epoch=2)
    third.go_on_from(second)
    assert not third.owes
    vouched_step(third, 4, 1, last := vouched(third, 5, start=4))
    assert third.bill().came == Came(2, SENDER.peer_id, last)


def test_what_was_rolled_back_is_forgotten(a_ticketing: MakeTicketing) -> None:
    before = Witness(a_ticketing(1))
    step(before, 0, 20)
    witness = Witness(a_ticketing(1))
    witness.go_on_from(before)
    step(witness, 12, 6, 0.5)
    bill = witness.bill()
    assert bill.outputs == committed(18, salt_from=12).commit()
    assert bill.inputs.stop == 18
    assert bill.sketch == sketch(outputs(0, 18, 0.0)[12:] + 0.5, 12)


def test_within_an_epoch_no_rows_are_taken_back_that_were_vouched_for(
    a_ticketing: MakeTicketing,
) -> None:
    witness = Witness(a_ticketing(1))
    step(witness, 0, 20)
    before = witness.bill()
    for position in (0, 12, 19):
        with pytest.raises(OutOfTurn, match=f"rows from {position} on again"):
            step(witness, position, 1)
    assert witness.bill() == before
    step(witness, 20, 1)


def test_a_gap_is_an_error_of_ours(a_ticketing: MakeTicketing) -> None:
    with pytest.raises(LocalError):
        step(Witness(a_ticketing(1)), 1, 1)


def test_a_conversation_goes_on_with_the_rows_of_the_request_before(
    a_ticketing: MakeTicketing,
) -> None:
    first, second = Witness(a_ticketing(1)), Witness(a_ticketing(2))
    step(first, 0, 20)
    first.is_billed = True
    second.go_on_from(first)
    assert not second.owes
    # Its prompt differs from position 10 on: those before are not computed again.
    step(second, 10, 30)
    bill = second.bill()
    assert (bill.start, bill.positions) == (10, 30)
    assert bill.outputs == committed(40).commit()
    assert bill.sketch == sketch(outputs(10, 30), 10)


def test_one_ticket_whose_session_goes_on_elsewhere_is_one_bill(
    a_ticketing: MakeTicketing,
) -> None:
    abandoned: list[Bill] = []
    first = Witness(a_ticketing(1), abandoned=abandoned.append)
    step(first, 0, 20)
    second = Witness(a_ticketing(1))
    second.go_on_from(first)
    first.end()
    step(second, 20, 5)
    assert abandoned == []
    assert (second.bill().start, second.bill().positions) == (0, 25)
    assert second.bill().sketch == sketch(outputs(0, 25), 0)


def test_what_was_billed_stays_so_where_it_goes_on(a_ticketing: MakeTicketing) -> None:
    first, second = Witness(a_ticketing(1)), Witness(a_ticketing(1))
    step(first, 0, 20)
    first.is_billed = True
    second.go_on_from(first)
    step(second, 20, 1)
    assert not second.owes


def test_what_nobody_billed_is_abandoned_once(a_ticketing: MakeTicketing) -> None:
    abandoned: list[Bill] = []
    witness = Witness(a_ticketing(1), abandoned=abandoned.append)
    witness.end()
    assert abandoned == []
    step(witness, 0, 4)
    witness.end()
    witness.end()
    assert [bill.positions for bill in abandoned] == [4]


def test_work_for_another_ticket_is_abandoned_before_its_rows_go_on(
    a_ticketing: MakeTicketing,
) -> None:
    abandoned: list[Bill] = []
    first = Witness(a_ticketing(1), abandoned=abandoned.append)
    step(first, 0, 4)
    second = Witness(a_ticketing(2))
    second.go_on_from(first)
    step(second, 4, 1)
    (bill,) = abandoned
    assert (bill.ticketing, bill.outputs) == (a_ticketing(1), committed(4).commit())


def test_rows_are_kept_for_whoever_audits(a_ticketing: MakeTicketing) -> None:
    left, came = Shelf(), Shelf()
    witness = Witness(a_ticketing(1), kept_outputs=left, kept_ids=came)
    step(witness, 0, 3)
    step(witness, 3, 1)
    assert came.rows == {at: ids(at, 1) for at in range(4)}
    assert left.rows == {at: outputs(at, 1).numpy().tobytes() for at in range(4)}
    later = Shelf()
    second = Witness(a_ticketing(2), kept_outputs=later)
    second.go_on_from(witness)
    step(second, 4, 1)
    assert sorted(later.rows) == list(range(5))
