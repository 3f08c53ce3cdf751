from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock

from musivum.testing import a_registration
from tessella.core.errors import (
    BadFrame,
    OutOfTurn,
    PeerReset,
    PeerSilent,
    PeerUnreachable,
    Refused,
    RemoteFailure,
    TessellaError,
)
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    Accepted,
    Announce,
    Assigned,
    Deregister,
    Message,
    Ready,
    Register,
    ReportFailure,
)
from tessella.worker.membership import (
    JOIN_SECONDS,
    LEAVE_TIMEOUT,
    MAX_REPORTS_WAITING,
    Membership,
)
from tessella.worker.mesh import Member, News
from tessella.worker.tracker import Tracker

LAYERS = LayerRange(0, 4)
NEWS = Announce("Healthy", 0, 0.0)
FORGOT = RemoteFailure("unknown_worker", "", retry=False)
AWAY = PeerUnreachable("no musivum")

Answer = Callable[[Message], TessellaError | Message | None]


class Musivum(Tracker):
    """Answers from our side: what `answer` gives, else yes. `heard` is every call, in order."""

    def __init__(self, answer: Answer = lambda _: None) -> None:
        self.heard: list[Message] = []
        self.answer = answer
        self.closed = False
        self.beat = 5.0

    async def call(self, message: Message) -> Assigned | Accepted:
        await trio.sleep(0.01)
        self.heard.append(message)
        answer = self.answer(message)
        if isinstance(answer, TessellaError):
            raise answer
        if isinstance(answer, Assigned | Accepted):
            return answer
        return Assigned(LAYERS, self.beat) if isinstance(message, Register) else Accepted()

    async def aclose(self) -> None:
        self.closed = True

    def kinds(self) -> list[str]:
        return [type(message).__name__ for message in self.heard]


@dataclass
class Node:
    """Whose membership it is."""

    layers: LayerRange = LAYERS
    said: Announce = NEWS
    assigned: list[LayerRange] = field(default_factory=list)
    failed: list[Exception] = field(default_factory=list)
    insists: bool = False
    defect: Exception | None = None

    def news(self) -> News:
        if self.defect is not None:
            raise self.defect
        return News(self.layers, self.said)

    def want(self, layers: LayerRange) -> None:
        if self.insists:
            raise Refused("it insists")
        self.assigned.append(layers)


def a_membership(musivum: Musivum, node: Node | None = None) -> Membership:
    node = node or Node()
    member = Member(a_registration(), 12, node.news, node.want, node.failed.append)
    return Membership(musivum, member)


@contextmanager
def for_seconds(seconds: float) -> Iterator[None]:
    with trio.move_on_after(seconds) as scope:
        yield
    assert scope.cancelled_caught, "it was to go on"


async def test_a_musivum_that_starts_in_the_same_minute_is_waited_for(
    autojump_clock: MockClock,
) -> None:
    musivum = Musivum(lambda _: AWAY if trio.current_time() < 20.0 else None)
    assert await a_membership(musivum).join() == LAYERS


async def test_without_a_musivum_joining_ends_with_a_reason_to_retry(
    autojump_clock: MockClock,
) -> None:
    started = trio.current_time()
    with pytest.raises(PeerUnreachable) as caught:
        await a_membership(Musivum(lambda _: AWAY)).join()
    assert caught.value.retry
    assert JOIN_SECONDS <= trio.current_time() - started <= JOIN_SECONDS + 1.0


async def test_a_refusal_to_join_leaves_at_once(autojump_clock: MockClock) -> None:
    refusal = RemoteFailure("claim_too_small", "1 MB holds no layer", retry=False)
    musivum = Musivum(lambda _: refusal)
    with pytest.raises(RemoteFailure, match="holds no layer"):
        await a_membership(musivum).join()
    assert musivum.kinds() == ["Register"]


async def test_an_answer_without_layers_is_refused(autojump_clock: MockClock) -> None:
    with pytest.raises(RemoteFailure, match="no layers"):
        await a_membership(Musivum(lambda _: Accepted())).join()


async def test_what_was_loaded_waits_for_a_musivum_that_is_away(
    autojump_clock: MockClock,
) -> None:
    musivum = Musivum(lambda _: AWAY if 1.0 < trio.current_time() < 300.0 else None)
    membership = a_membership(musivum)
    await membership.join()
    await trio.sleep(2.0)
    await membership.ready(LAYERS)
    assert musivum.heard[-1] == Ready(LAYERS)


async def test_a_musivum_that_forgot_us_during_the_load_is_joined_again(
    autojump_clock: MockClock,
) -> None:
    musivum = Musivum()
    membership = a_membership(musivum)
    await membership.join()
    forgot = iter([FORGOT])
    musivum.answer = lambda _: next(forgot, None)
    await membership.ready(LAYERS)
    assert musivum.kinds() == ["Register", "Ready", "Register", "Ready"]
    again = musivum.heard[2]
    assert isinstance(again, Register)
    assert again.wanted == LAYERS


async def test_a_ready_that_is_refused_leaves(autojump_clock: MockClock) -> None:
    musivum = Musivum()
    membership = a_membership(musivum)
    await membership.join()
    musivum.answer = lambda _: RemoteFailure("refused", "other layers", retry=False)
    with pytest.raises(RemoteFailure, match="other layers"):
        await membership.ready(LAYERS)


async def test_a_heartbeat_goes_out_as_often_as_musivum_said(autojump_clock: MockClock) -> None:
    musivum = Musivum()
    membership = a_membership(musivum)
    await membership.join()
    await membership.ready(LAYERS)
    with for_seconds(26.0):
        await membership.announce()
    assert musivum.heard[2:] == [NEWS] * 5


@pytest.mark.parametrize(("said", "beats"), [(0.0, 10), (-1.0, 10), (1e9, 0)])
async def test_a_heartbeat_is_neither_a_load_test_nor_never(
    autojump_clock: MockClock, said: float, beats: int
) -> None:
    musivum = Musivum()
    musivum.beat = said
    membership = a_membership(musivum)
    await membership.join()
    await membership.ready(LAYERS)
    with for_seconds(1.15):
        await membership.announce()
    assert len(musivum.heard[2:]) == beats
    if not beats:
        with for_seconds(301.0):
            await membership.announce()
        assert musivum.heard[2:] == [NEWS]


@pytest.mark.parametrize(
    "error",
    [
        AWAY,
        PeerSilent("nothing"),
        PeerReset("gone"),
        BadFrame("noise"),
        OutOfTurn("Peers from musivum"),
        RemoteFailure("too_many_sessions", "", retry=True),
        FORGOT,
    ],
    ids=lambda error: str(error.code),
)
async def test_no_answer_of_musivum_ends_the_heartbeat(
    autojump_clock: MockClock, error: TessellaError
) -> None:
    musivum = Musivum()
    membership = a_membership(musivum)
    await membership.join()
    await membership.ready(LAYERS)
    musivum.answer = lambda _: error
    with for_seconds(60.0):
        await membership.announce()
    musivum.answer = lambda _: None
    with for_seconds(11.0):
        await membership.announce()
    assert musivum.heard[-1] == NEWS


async def test_a_musivum_that_was_started_again_learns_all_by_the_next_heartbeat(
    autojump_clock: MockClock,
) -> None:
    musivum = Musivum()
    membership = a_membership(musivum)
    await membership.join()
    await membership.ready(LAYERS)
    known = True

    def answer(message: Message) -> TessellaError | None:
        nonlocal known
        known = known or isinstance(message, Register)
        return None if known else FORGOT

    musivum.answer, known = answer, False
    musivum.heard.clear()
    with for_seconds(5.5):
        await membership.announce()
    assert musivum.kinds()[-2:] == ["Register", "Ready"]


async def test_a_ready_that_was_lost_is_said_again(autojump_clock: MockClock) -> None:
    musivum = Musivum()
    membership = a_membership(musivum)
    await membership.join()
    await membership.ready(LAYERS)
    musivum.heard.clear()
    lost = iter([FORGOT, None, AWAY])  # Announce, Register, Ready
    musivum.answer = lambda _: next(lost, None)
    with for_seconds(16.0):
        await membership.announce()
    assert musivum.kinds() == ["Announce", "Register", "Ready", "Ready", "Announce"]


async def test_reports_are_sent_and_those_that_do_not_fit_are_dropped(
    autojump_clock: MockClock,
) -> None:
    musivum = Musivum(lambda _: RemoteFailure("too_many_sessions", "", retry=True))
    membership = a_membership(musivum)
    for number in range(MAX_REPORTS_WAITING + 5):
        membership.report(PeerId(str(number)), PeerReset("gone"))
    with for_seconds(5.0):
        await membership.send_reports()
    assert musivum.heard == [
        ReportFailure(PeerId(str(number)), "peer_reset") for number in range(MAX_REPORTS_WAITING)
    ]


@pytest.mark.parametrize("error", [None, AWAY])
async def test_leaving_says_goodbye_and_closes_whoever_hears_it(
    autojump_clock: MockClock, error: TessellaError | None
) -> None:
    musivum = Musivum(lambda _: error)
    with trio.CancelScope() as scope:
        scope.cancel()
        await a_membership(musivum).leave()
    assert musivum.heard == [Deregister()]
    assert musivum.closed


async def test_leaving_waits_for_nobody(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Stuck(Musivum):
        async def call(self, message: Message) -> Assigned | Accepted:
            await trio.sleep_forever()
            raise AssertionError

    caplog.set_level(logging.INFO)
    started = trio.current_time()
    await a_membership(Stuck()).leave()
    assert trio.current_time() - started == pytest.approx(LEAVE_TIMEOUT)


LOADING = Announce("PendingLoad", 0, 0.0, 10, 40)
OTHER = LayerRange(4, 8)


async def test_from_joining_on_a_node_says_how_far_its_load_is(autojump_clock: MockClock) -> None:
    musivum, node = Musivum(), Node(said=LOADING)
    membership = a_membership(musivum, node)
    await membership.join()
    with for_seconds(11.0):
        await membership.run()
    assert musivum.heard[1:] == [LOADING] * 2


async def test_a_change_is_said_at_once(autojump_clock: MockClock) -> None:
    musivum, node = Musivum(), Node()
    membership = a_membership(musivum, node)
    await membership.join()
    await membership.ready(LAYERS)
    node.said = draining = Announce("Draining", 1, 0.0)
    membership.changed()
    with for_seconds(0.1):
        await membership.announce()
    assert musivum.heard[-1] == draining


@pytest.mark.parametrize("said", [NEWS, LOADING], ids=lambda said: str(said.status))
async def test_a_heartbeat_may_be_answered_with_another_range(
    autojump_clock: MockClock, said: Announce
) -> None:
    musivum, node = Musivum(), Node(said=said)
    membership = a_membership(musivum, node)
    await membership.join()
    musivum.answer = lambda _: Assigned(OTHER, 2.0)
    with for_seconds(8.0):
        await membership.announce()
    assert node.assigned == [OTHER] * 2, "at 5 s, and 2 s later, as the answer said"


async def test_a_range_that_the_node_refuses_ends_no_heartbeat(autojump_clock: MockClock) -> None:
    musivum, node = Musivum(), Node(insists=True)
    membership = a_membership(musivum, node)
    await membership.join()
    await membership.ready(LAYERS)
    musivum.answer = lambda _: Assigned(OTHER, 5.0)
    with for_seconds(11.0):
        await membership.announce()
    assert musivum.heard[-2:] == [NEWS] * 2
    assert node.failed == []


@pytest.mark.parametrize(
    ("said", "kinds"),
    [(NEWS, ["Announce", "Register", "Ready"]), (LOADING, ["Announce", "Register"])],
    ids=["serving", "loading"],
)
async def test_a_musivum_without_a_memory_learns_the_range_that_is_held(
    autojump_clock: MockClock, said: Announce, kinds: list[str]
) -> None:
    musivum, node = Musivum(), Node()
    membership = a_membership(musivum, node)
    await membership.join()
    await membership.ready(LAYERS)
    node.layers = OTHER
    await membership.ready(OTHER)
    node.said = said
    musivum.heard.clear()
    forgot = iter([FORGOT])
    musivum.answer = lambda _: next(forgot, None)
    with for_seconds(5.5):
        await membership.announce()
    assert musivum.kinds() == kinds
    again = musivum.heard[1]
    assert isinstance(again, Register)
    assert again.wanted == OTHER


async def test_another_range_at_registering_again_is_one_to_move_to(
    autojump_clock: MockClock,
) -> None:
    musivum, node = Musivum(), Node(layers=OTHER)
    membership = a_membership(musivum, node)
    await membership.join()
    forgot = iter([FORGOT])
    musivum.answer = lambda _: next(forgot, None)
    await membership.ready(OTHER)
    assert node.assigned == [LAYERS]


async def test_a_musivum_that_refuses_what_was_loaded_is_told_once_more_what_is_held(
    autojump_clock: MockClock,
) -> None:
    musivum = Musivum()
    membership = a_membership(musivum)
    await membership.join()
    once = iter([RemoteFailure("refused", "other layers", retry=False)])
    musivum.answer = lambda _: next(once, None)
    await membership.ready(LAYERS)
    assert musivum.kinds() == ["Register", "Ready", "Register", "Ready"]


async def test_a_node_that_serves_again_after_draining_says_so(autojump_clock: MockClock) -> None:
    musivum, node = Musivum(), Node()
    membership = a_membership(musivum, node)
    await membership.join()
    await membership.ready(LAYERS)
    node.said = Announce("Draining", 1, 0.0)
    with for_seconds(5.5):
        await membership.announce()
    node.said = NEWS
    with for_seconds(5.5):
        await membership.announce()
    assert musivum.kinds()[2:] == ["Announce", "Ready"]


async def test_a_defect_in_the_heartbeat_is_told_and_does_not_end_it(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    musivum, node = Musivum(), Node()
    membership = a_membership(musivum, node)
    await membership.join()
    await membership.ready(LAYERS)
    musivum.heard.clear()
    node.defect = ZeroDivisionError("a defect")
    with for_seconds(60.0):
        await membership.run()
    assert musivum.heard == []
    assert 3 <= len(node.failed) <= 10, "again and again, and not in a loop without pauses"
    assert {type(error) for error in node.failed} == {ZeroDivisionError}
    assert "ZeroDivisionError" in caplog.text


async def test_a_heartbeat_is_back_after_a_defect(autojump_clock: MockClock) -> None:
    musivum, node = Musivum(), Node()
    membership = a_membership(musivum, node)
    await membership.join()
    await membership.ready(LAYERS)
    node.defect = ZeroDivisionError("a defect")

    async def mend() -> None:
        await trio.sleep(5.2)
        node.defect = None

    async with trio.open_nursery() as nursery:
        nursery.start_soon(mend)
        with for_seconds(12.0):
            await membership.run()
    assert musivum.heard[-1] == NEWS
    assert len(node.failed) == 1


async def test_a_heartbeat_that_was_not_taken_is_told(autojump_clock: MockClock) -> None:
    musivum, node = Musivum(), Node()
    membership = a_membership(musivum, node)
    await membership.join()
    musivum.answer = lambda _: AWAY
    with for_seconds(5.5):
        await membership.announce()
    assert node.failed == [AWAY]
