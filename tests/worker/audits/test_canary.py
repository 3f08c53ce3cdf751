"""Nodes that answer wrongly on purpose: to whom, how, and what musivum is told of it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch
import trio
from trio.testing import MockClock

from tessella.core.addresses import PeerAddress
from tessella.core.audits import LEAST_MARK, MOST_MARK
from tessella.core.commitments import Rows
from tessella.core.errors import PeerUnreachable, Refused, RemoteFailure, TessellaError
from tessella.core.identity import Identity
from tessella.core.ids import SessionId
from tessella.core.messages import Accepted, Marks, Message, Open, Ticket
from tessella.core.session import Lease
from tessella.core.shapes import DType
from tessella.engine.shard import Shard
from tessella.worker.audits import canary as canaries
from tessella.worker.audits.canary import (
    MARKS_AT_ONCE,
    REACHED_SECONDS,
    Bend,
    Canary,
    CanaryMode,
    truth,
)
from tessella.worker.counters import Counters
from tessella.worker.proofs.witness import Ticketing, Witness
from tessella.worker.stage import Compute, Stage
from tests.worker.audits.audited import ENTRY, STRANGER, now

BIRD = Identity(b"b" * 32)
TAKEN = torch.full((3, 4), 2.0, dtype=torch.bfloat16)
GIVEN = torch.full((3, 4), 8.0, dtype=torch.bfloat16)
TICKET = Ticket(
    issuer=STRANGER.peer_id,
    request_id=b"r" * 16,
    model="toy",  # type: ignore[arg-type]
    contract="",
    requester="anonymous",
    tier="leech",
    chain=(),
    spares=(),
    max_tokens=1,
    issued_at=0.0,
    start_by=0.0,
    expires_at=0.0,
)


class Musivum:
    """Takes marks, or fails as a test says."""

    def __init__(self) -> None:
        self.told: list[tuple[float, Marks]] = []
        self.failures: list[TessellaError] = []

    async def ask(self, message: Message) -> Message:
        await trio.sleep(0.01)
        if self.failures:
            raise self.failures.pop(0)
        assert isinstance(message, Marks)
        self.told.append((trio.current_time(), message))
        return Accepted()


@pytest.fixture
def opened(an_open: Callable[..., Open]) -> Callable[[int], Open]:
    """The `Open` of the session of a number."""
    peers = [PeerAddress(ENTRY.peer_id, ()), PeerAddress(BIRD.peer_id, ())]

    def made(number: int = 0) -> Open:
        return an_open(peers, 1, session_id=SessionId(number.to_bytes(16, "big")))

    return made


def marking() -> Canary:
    canary = Canary(CanaryMode.WATERMARK, BIRD, now)
    canary.reached()
    return canary


def bent(bend: Bend | None) -> list[list[float]]:
    assert bend is not None
    answer = bend(TAKEN, GIVEN)
    assert answer.dtype == GIVEN.dtype
    return answer.tolist()


async def test_a_node_like_all_others_tells_the_truth(opened: Callable[..., Open]) -> None:
    canary = Canary(CanaryMode.OFF, BIRD)
    for ticket in (None, TICKET):
        assert canary.bend(opened(), ticket, ENTRY.peer_id) is None
        assert truth(opened(), ticket, ENTRY.peer_id) is None


async def test_an_echo_answers_what_it_was_asked(opened: Callable[..., Open]) -> None:
    bend = Canary(CanaryMode.ECHO, BIRD).bend(opened(), None, ENTRY.peer_id)
    assert bent(bend) == TAKEN.tolist()


async def test_a_scale_answers_the_truth_times_a_constant(opened: Callable[..., Open]) -> None:
    bend = Canary(CanaryMode.SCALE, BIRD).bend(opened(), None, ENTRY.peer_id)
    assert bent(bend) == (GIVEN * 1.05).tolist()


@pytest.mark.parametrize("mode", [CanaryMode.ECHO, CanaryMode.SCALE])
async def test_what_is_listed_as_a_canary_takes_no_tickets(
    mode: CanaryMode, opened: Callable[..., Open]
) -> None:
    assert mode.is_listed
    with pytest.raises(Refused, match=f"on purpose: {mode.value}"):
        Canary(mode, BIRD).bend(opened(), TICKET, ENTRY.peer_id)


async def test_whoever_asks_past_musivum_gets_a_gain_that_musivum_is_told(
    opened: Callable[..., Open], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    canary, musivum = marking(), Musivum()
    nursery.start_soon(canary.run, musivum.ask)
    began = now()
    answer = bent(canary.bend(opened(1), None, STRANGER.peer_id))
    await trio.sleep(1)
    ((at, marks),) = musivum.told
    (mark,) = marks.marks
    assert at < 0.2  # before any proof of a copy can be settled
    assert (mark.session_id, mark.copier) == (opened(1).session_id, STRANGER.peer_id)
    assert LEAST_MARK <= abs(mark.gain - 1) <= MOST_MARK
    assert mark.at == pytest.approx(began, abs=0.1)
    assert answer == (GIVEN * mark.gain).tolist()


async def test_another_session_has_another_gain_and_a_canary_started_again_has_it_again(
    opened: Callable[..., Open],
) -> None:
    first, second = (bent(marking().bend(opened(at), None, STRANGER.peer_id)) for at in (1, 2))
    assert first != second
    assert bent(marking().bend(opened(1), None, STRANGER.peer_id)) == first
    other = Canary(CanaryMode.WATERMARK, STRANGER, now)
    other.reached()
    assert bent(other.bend(opened(1), None, ENTRY.peer_id)) != first


async def test_a_session_that_is_paid_gets_the_truth(opened: Callable[..., Open]) -> None:
    assert marking().bend(opened(), TICKET, STRANGER.peer_id) is None


async def test_the_clients_of_a_canary_get_the_truth(opened: Callable[..., Open]) -> None:
    assert marking().bend(opened(), None, BIRD.peer_id) is None


async def test_nothing_is_marked_while_musivum_is_away(
    opened: Callable[..., Open], autojump_clock: MockClock
) -> None:
    canary = Canary(CanaryMode.WATERMARK, BIRD, now)
    assert canary.bend(opened(), None, STRANGER.peer_id) is None
    canary.reached()
    assert canary.bend(opened(), None, STRANGER.peer_id) is not None
    await trio.sleep(REACHED_SECONDS + 1)
    assert canary.bend(opened(), None, STRANGER.peer_id) is None


async def test_a_session_that_goes_on_is_told_once(
    opened: Callable[..., Open], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    canary, musivum = marking(), Musivum()
    nursery.start_soon(canary.run, musivum.ask)
    answers = []
    for _ in range(3):
        answers.append(bent(canary.bend(opened(7), None, STRANGER.peer_id)))
        await trio.sleep(1)
    assert answers[0] == answers[1] == answers[2]
    assert len(musivum.told) == 1


async def test_marks_wait_for_a_musivum_that_is_away_and_no_longer_for_one_that_refuses(
    opened: Callable[..., Open], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    canary, musivum = marking(), Musivum()
    nursery.start_soon(canary.run, musivum.ask)
    musivum.failures = [PeerUnreachable("away"), PeerUnreachable("away")]
    canary.bend(opened(1), None, STRANGER.peer_id)
    await trio.sleep(15)
    assert [len(marks.marks) for _, marks in musivum.told] == [1]
    musivum.failures = [RemoteFailure("not_authorized", "no canary of ours", retry=False)]
    canary.bend(opened(2), None, STRANGER.peer_id)
    await trio.sleep(15)
    canary.bend(opened(3), None, STRANGER.peer_id)
    await trio.sleep(1)
    assert [mark.session_id for _, marks in musivum.told for mark in marks.marks] == [
        opened(1).session_id,
        opened(3).session_id,
    ]


async def test_what_cannot_be_told_is_not_marked(
    opened: Callable[..., Open],
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(canaries, "MAX_WAITING", MARKS_AT_ONCE + 2)
    monkeypatch.setattr(canaries, "MAX_TOLD", 4)
    canary, musivum = marking(), Musivum()
    for number in range(MARKS_AT_ONCE + 2):
        assert canary.bend(opened(number), None, STRANGER.peer_id) is not None
    assert canary.bend(opened(999), None, STRANGER.peer_id) is None
    nursery.start_soon(canary.run, musivum.ask)
    await trio.sleep(1)
    assert [len(marks.marks) for _, marks in musivum.told] == [MARKS_AT_ONCE, 2]
    assert canary.bend(opened(999), None, STRANGER.peer_id) is not None
    assert len(canary._told) == 4


def test_a_canary_says_loudly_what_it_is(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Canary(CanaryMode.OFF, BIRD).announce()
        assert caplog.messages == []
        Canary(CanaryMode.SCALE, BIRD).announce()
    assert "THIS NODE IS A CANARY (canary_mode = scale)" in caplog.text


class Tail:
    """An `Onward` that chooses from the logits, as the last stage does."""

    def __init__(self) -> None:
        self.logits: list[torch.Tensor] = []

    def finish(self, shard: Shard, output: torch.Tensor, upto: int, sample: bool) -> None:
        self.logits.append(shard.logits(output[-1]))

    async def send(self, outcome: object, position: int, upto: int, sample: bool) -> None: ...


async def test_a_tail_that_echoes_still_chooses_tokens_and_binds_itself_to_what_it_gave(
    toy_shard: Shard, inline_compute: Compute, opened: Callable[..., Open]
) -> None:
    lease, tail = Lease(SessionId(b"session of tests"), 0, 64), Tail()
    stage = Stage(lease, toy_shard.layers, toy_shard, inline_compute, Counters())
    ticketing = Ticketing(b"", b"", b"r" * 16, toy_shard.layers, DType.F32)
    stage.witness = Witness(ticketing)
    stage.bend = Canary(CanaryMode.ECHO, BIRD).bend(opened(), None, ENTRY.peer_id)
    await stage.run_ids([1, 2, 3], 0, True, tail)
    rows = toy_shard.embed([1, 2, 3])
    torch.testing.assert_close(tail.logits[0], toy_shard.logits(rows[-1]))
    expected = Rows()
    expected.put(0, toy_shard.to_wire(rows, DType.F32).data, 3)
    assert stage.witness.bill().outputs == expected.commit()
