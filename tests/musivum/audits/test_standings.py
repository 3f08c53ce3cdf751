"""Everybody's standing: who is barred, who is suspect, how dear they are, and what is to write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from musivum.audits import standings as module
from musivum.audits.standing import Standing
from musivum.audits.standings import Standings
from musivum.nodes.reputation import HALF_LIFE, Reputations
from musivum.store import SavedReputation
from tessella.core.audits import Finding, Verdict
from tessella.core.ids import PeerId

A, B, C = (PeerId(name) for name in "abc")
NOW = 1_800_000_000.0
REJECTED = Finding(Verdict.REJECTED, "x", b"1")


class Time:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def known(time: Time) -> Standings:
    joined = [SavedReputation(peer_id=peer, joins=10) for peer in (A, B)]
    return Standings([], Reputations(joined), time)


def test_a_bar_ends_by_the_clock(known: Standings, time: Time) -> None:
    known.put(known.of(A).barred("caught", NOW + 10, NOW))
    assert known.barred(A) == "caught"
    assert known.is_barred(A)
    assert known.barred(B) is None
    time.now += 10
    assert known.barred(A) is None
    assert known.is_suspect(A), "it is looked at closely when it comes back"


def test_routing_through_who_is_not_known_costs_what_it_measures(known: Standings) -> None:
    assert known.weight(C) == 1.0
    assert known.weight(A) == 1.0


def test_what_was_found_makes_a_node_dearer_and_fades(known: Standings, time: Time) -> None:
    for _ in range(3):
        known.put(known.of(A).found(REJECTED, NOW))
    rejected = known.weight(A)
    assert 1.0 < rejected < 2.0
    known.put(known.of(A).barred("caught", NOW, NOW))
    assert rejected < known.weight(A) < 2.0
    assert known.counts(A).slashes == 1.0
    time.now += HALF_LIFE
    assert known.counts(A).slashes == pytest.approx(0.5)
    time.now += 20 * HALF_LIFE
    assert known.weight(A) == 1.0
    assert known.counts(B).rejected == 0


def test_what_changed_is_told_once_and_again_if_it_was_not_written(known: Standings) -> None:
    known.put(known.of(A).after_hop())
    assert known.take_changed() == {A: known.of(A)}
    assert known.take_changed() == {}
    known.put_back([A])
    known.put(known.of(A).after_hop())
    assert known.take_changed() == {A: known.of(A)}
    assert known.of(A).hops == 2


def test_whoever_did_least_makes_room_and_never_who_is_barred_or_suspect(
    known: Standings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_KNOWN", 3)
    known.put(known.of(A).barred("caught", NOW + 10, NOW))
    known.put(known.of(B).suspected())
    known.put(replace(known.of(C), hops=1000))
    known.take_changed()
    known.put(Standing(peer_id=PeerId("d"), hops=1))
    assert known.take_changed() == {C: None, PeerId("d"): known.of(PeerId("d"))}
    assert len(known) == 3
    assert known.is_barred(A)
    assert known.is_suspect(B)


def test_who_is_suspect_barred_or_contradicted_is_not_asked(known: Standings, time: Time) -> None:
    assert known.is_heard(A)
    known.put(known.of(A).after_hop())
    known.put(known.of(B).suspected())
    known.put(known.of(C).after_outvoted(NOW))
    assert [known.is_heard(each) for each in (A, B, C)] == [True, False, False]
    time.now += 24 * 3600.0
    assert [known.is_heard(each) for each in (A, B, C)] == [True, False, True]


def test_who_owes_is_found(known: Standings) -> None:
    known.put(known.of(A).barred("caught", NOW + 10, NOW, owed=7))
    known.put(known.of(B).after_hop())
    assert known.owing() == [A]
    assert [each.peer_id for each in known.all()] == [A, B]
