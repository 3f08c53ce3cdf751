"""Following a partner: what is broken is asked for again, and a second history never is."""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
import trio
import trio.testing

from musivum.bodies.ledger import SnapshotBody
from musivum.federation.pull import MAX_PAUSE_SECONDS, State
from musivum.ledger import SignedHead
from tessella.core.errors import BadFrame, BadLedger, BadSignature, StoreUnavailable, TessellaError
from tessella.core.identity import Identity
from tessella.core.ledger import MINT, Line, open_head
from tests.musivum.federation.light import A, B, Light, Wire, a_proof, pair
from tests.musivum.federation.script import WORKER, History, of_payments, page_of, under
from tests.musivum.ledger.keeping import PAY

Say = Callable[[SnapshotBody], Awaitable[SnapshotBody]]


def says(page: SnapshotBody) -> Say:
    """A partner that has one answer."""

    async def say(_: SnapshotBody) -> SnapshotBody:
        return page

    return say


async def held(count: int) -> tuple[Light, History]:
    """B, which has so many entries of A's; A says what a test scripts."""
    a, b = pair()
    history = of_payments(count, A)
    b.wire.change = says(page_of(history, 0))
    await b.follower(a).pull()
    assert await b.ledger.size(A.peer_id) == count
    return b, history


async def is_as_it_was(b: Light, history: History) -> None:
    """Nothing was taken, and nothing is lost."""
    assert await b.ledger.size(A.peer_id) == len(history.payloads)
    assert await b.ledger.balance(WORKER) == 5 * len(history.payloads)
    await b.verify()


def other_from(history: History, size: int, more: int = 3) -> History:
    """A history that is the same up to an entry."""
    made = history.copy(size)
    for number in range(100, 100 + more):
        made.pay(number)
    return made


@pytest.mark.parametrize(
    ("name", "error", "change"),
    [
        ("replayed page", BadFrame, lambda h: page_of(h, 0)),
        ("replayed page that says it goes on", BadLedger, lambda h: _since(page_of(h, 2), 4)),
        ("gap", BadLedger, lambda h: _since(page_of(h, 5), 4)),
        ("duplicate", BadLedger, lambda h: _twice(page_of(h, 4))),
        ("torn page", BadLedger, lambda h: _torn(page_of(h, 4))),
        ("no base64", BadFrame, lambda h: _with(page_of(h, 4), "%%%%")),
        ("beyond its head", BadFrame, lambda h: under(h.copy(5).signed(), h, 4)),
        ("cut tail", BadFrame, lambda h: _since(page_of(h, 8), 4)),
        ("foreign key", BadSignature, lambda h: _foreign(page_of(h, 4))),
        ("forged head", BadSignature, lambda h: _forged(page_of(h, 4), h)),
    ],
)
async def test_a_page_that_is_broken_is_not_taken_and_the_next_one_is(
    name: str, error: type[TessellaError], change: Callable[[History], SnapshotBody]
) -> None:
    b, history = await held(4)
    longer = other_from(history, 4, 4)
    follower = b.follower(A)
    b.wire.change = says(change(longer))
    with pytest.raises(error):
        await follower.pull()
    await is_as_it_was(b, history)
    b.wire.change = says(page_of(longer, 4))
    await follower.pull()
    await is_as_it_was(b, longer)
    assert follower.state is State.FOLLOWING


def _since(page: SnapshotBody, place: int) -> SnapshotBody:
    return page.model_copy(update={"since": place})


def _with(page: SnapshotBody, entry: str) -> SnapshotBody:
    return page.model_copy(update={"entries": [entry, *page.entries[1:]]})


def _twice(page: SnapshotBody) -> SnapshotBody:
    return page.model_copy(update={"entries": [page.entries[0], *page.entries]})


def _torn(page: SnapshotBody) -> SnapshotBody:
    return _with(page, b64encode(b64decode(page.entries[0])[:-3]).decode())


def _foreign(page: SnapshotBody) -> SnapshotBody:
    other = of_payments(8, Identity(b"Q" * 32)).signed()
    return _headed(page, other)


def _forged(page: SnapshotBody, history: History) -> SnapshotBody:
    return _headed(page, SignedHead(history.signed().payload, history.copy(5).signed().signature))


def _headed(page: SnapshotBody, signed: SignedHead) -> SnapshotBody:
    changed = {
        "payload": b64encode(signed.payload).decode(),
        "signature": signed.signature.hex(),
    }
    return page.model_copy(update={"head": page.head.model_copy(update=changed)})


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("rollback", lambda h: _since(page_of(h.copy(2), 2), 4), "rolled back: a head of 2"),
        ("fork", lambda h: page_of(other_from(h, 3, 1), 4), "a fork: two heads of 4 entries"),
        ("rewritten", lambda h: page_of(other_from(h, 1, 9), 4), "a fork: entry 4 was written"),
        (
            "head of other entries",
            lambda h: under(other_from(h, 3, 4).signed(), other_from(h, 4), 4),
            "a fork: ",
        ),
    ],
)
async def test_a_second_history_is_refused_for_good_and_both_heads_are_kept(
    name: str,
    change: Callable[[History], SnapshotBody],
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    b, history = await held(4)
    page = change(history)
    b.wire.change = says(page)
    with caplog.at_level(logging.ERROR):
        assert not await b.follower(A).pull()
        asked = b.wire.asked
        b.wire.change = says(page_of(other_from(history, 4), 4))
        assert not await b.follower(A).pull()
    assert b.wire.asked == asked
    assert len([each for each in caplog.records if "any more" in each.message]) == 1
    (partner,) = b.federation.status().partners
    assert partner.state == "refused"
    assert partner.error.startswith(said)
    sizes = [(head.size, head.root) for head in partner.evidence]
    assert sizes == [(4, history.seen().head.root.hex()), (page.head.size, page.head.root)]
    for head in partner.evidence:  # anyone can check what it signed
        open_head(b64decode(head.payload), bytes.fromhex(head.signature), A.peer_id)
    await is_as_it_was(b, history)
    # A restart changes nothing.
    again = Light(B, [A], b.wire, b.store)
    assert not await again.follower(A).pull()
    assert again.federation.status().partners == [
        partner.model_copy(update={"pulled_at": None}),
    ]


async def test_who_is_forgotten_is_followed_anew() -> None:
    b, history = await held(4)
    other = other_from(history, 2)
    b.wire.change = says(page_of(other, 4))
    await b.follower(A).pull()
    assert b.follower(A).state is State.REFUSED
    assert (await b.federation.forget(A.peer_id)).entries == 4
    b.wire.change = says(page_of(other, 0))
    await b.follower(A).pull()
    await is_as_it_was(b, other)
    assert b.follower(A).body().evidence == []


async def test_a_partner_that_lost_its_ledger_is_refused_until_it_is_forgotten() -> None:
    a, b = pair()
    await a.ledger.settle([a_proof(1), a_proof(2)])
    await b.sync(a)
    a = Light(A, [B], b.wire)
    await a.ledger.settle([a_proof(3)])
    await b.sync(a)
    assert b.follower(A).body().error == "rolled back: a head of 1 entries after one of 2"
    await b.federation.forget(A.peer_id)
    await b.sync(a)
    assert await b.balances() == await a.balances()


async def test_the_figures_of_a_scripted_partner(capsys: pytest.CaptureFixture[str]) -> None:
    """Rollback and fork by two partners of one musivum, and a page that comes three times."""
    found = {}
    tellings: dict[str, Callable[[History], SnapshotBody]] = {
        "rollback": lambda h: _since(page_of(h.copy(2), 2), 4),
        "fork": lambda h: page_of(other_from(h, 3, 1), 4),
    }
    for name, told in tellings.items():
        b, history = await held(4)
        b.wire.change = says(page_of(history, 0))
        for _ in range(2):
            with pytest.raises(BadFrame):
                await b.follower(A).pull()
        double = await b.ledger.balance(WORKER) - 5 * 4
        b.wire.change = says(told(history))
        await b.follower(A).pull()
        (partner,) = b.federation.status().partners
        found[name] = (partner.state, double, len(partner.evidence))
    line = (
        f"fed rollback={found['rollback'][0]} fork={found['fork'][0]} "
        f"dup_credits={found['fork'][1]} evidence={found['fork'][2]}"
    )
    with capsys.disabled():
        print(f"\n{line}")  # noqa: T201 - the figures are for people
    assert line == "fed rollback=refused fork=refused dup_credits=0 evidence=2"


async def test_amounts_that_no_store_keeps_are_not_taken() -> None:
    b, history = await held(1)
    longer = history.copy()
    for number in range(50, 54):
        longer.pay(number, 2**61)
    b.wire.change = says(page_of(longer, 1))
    with pytest.raises(BadLedger, match="no sum to keep"):
        await b.follower(A).pull()
    await is_as_it_was(b, history)


async def test_times_of_another_clock_do_no_harm() -> None:
    b, history = await held(1)
    longer = history.copy()
    for at in (0.0, 1e300):
        longer.at = at
        longer.pay(round(at % 7) + 60)
    b.wire.change = says(page_of(longer, 1))
    await b.follower(A).pull()
    await is_as_it_was(b, longer)
    await b.federation.forget(A.peer_id)
    assert await b.balances() == {}


async def test_a_store_that_cannot_write_takes_nothing_and_both_go_on_later() -> None:
    a, b = pair()
    await a.ledger.settle([a_proof(1)])
    await b.follower(a).load()
    b.store.error = StoreUnavailable("no room")  # type: ignore[attr-defined]
    with pytest.raises(StoreUnavailable):
        await b.sync(a)
    b.store.error = None  # type: ignore[attr-defined]
    await b.sync(a)
    assert await b.balances() == await a.balances()


async def test_a_partner_is_asked_as_often_as_is_said_and_less_often_while_it_is_away(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    wire = Wire()
    b = Light(B, [A], wire, seconds=30.0)
    asked: list[float] = []

    async def say(page: SnapshotBody) -> SnapshotBody:
        asked.append(trio.current_time())
        return page

    wire.change = say
    async with trio.open_nursery() as nursery:
        nursery.start_soon(b.federation.run)
        await trio.sleep(3000)
        assert wire.asked == len([30 * 2**n for n in range(1, 5)]) + 1 + (3000 - 930) // 600
        assert b.follower(A).state is State.AWAY
        assert "peer_unreachable" in b.follower(A).body().error
        a = Light(A, [B], wire)
        await a.ledger.settle([a_proof(1)])
        await trio.sleep(MAX_PAUSE_SECONDS)
        assert await b.ledger.balance(WORKER) == PAY
        assert b.follower(A).body().error == ""
        assert len(asked) >= 2
        assert {round(late - early) for early, late in pairwise(asked)} == {30}
        nursery.cancel_scope.cancel()
    said = [each.message for each in caplog.records]
    assert len([each for each in said if "is not followed" in each]) == 1
    assert len([each for each in said if "is followed again" in each]) == 1


async def test_lines_of_a_reversal_by_a_partner_move_accounts_back() -> None:
    b, history = await held(2)
    longer = history.copy()
    longer.add("reversal", Line(WORKER, -5), Line(MINT, 5), number=1)
    b.wire.change = says(page_of(longer, 2))
    await b.follower(A).pull()
    found = await b.ledger.credits(WORKER)
    assert (found.balance, found.earned, found.earned_day) == (5, 5, 5)
    await b.verify()


async def test_a_partner_that_paid_twice_has_one_payment_of_ours_taken_back() -> None:
    _, b = pair()
    await b.ledger.settle([a_proof(1)])
    history = History(A)
    for number in (1, 1):
        history.pay(number)
        history.add("reversal", Line(WORKER, -5), Line(MINT, 5), issuer=A.peer_id, number=number)
    history.pay(1)
    b.wire.change = says(page_of(history, 0))
    await b.follower(A).pull()
    assert [entry.kind for entry in await b.entries()] == ["payment", "reversal"]
    assert await b.balances() == {WORKER: 5, MINT: -5}
    await b.verify()
