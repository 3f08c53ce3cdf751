"""What each event makes of a worker's standing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from musivum.audits.standing import (
    HIDING_SECONDS,
    KEPT_SHOWN,
    SECONDS_A_DAY,
    Standing,
)
from musivum.nodes.reputation import NO_AUDITS
from tessella.core.audits import FIRST_HOPS, SUSPECT_HOPS, Finding, Verdict
from tessella.core.ids import PeerId

BLANK = Standing(peer_id=PeerId("w"))
VETERAN = replace(BLANK, hops=10_000)
REJECTED = Finding(Verdict.REJECTED, "a", b"1")
PASSED = Finding(Verdict.PASSED, "a", b"2")
NOW = 1_800_000_000.0


def test_of_who_is_new_or_suspect_all_is_audited() -> None:
    assert BLANK.share == replace(BLANK, hops=FIRST_HOPS - 1).share == 1.0
    assert VETERAN.share == 0.05
    assert VETERAN.suspected().share == 1.0


def test_suspicion_wears_off_with_hops() -> None:
    standing = VETERAN.suspected()
    for _ in range(SUSPECT_HOPS):
        assert standing.is_suspect
        standing = standing.after_hop()
    assert not standing.is_suspect
    assert standing.hops == VETERAN.hops + SUSPECT_HOPS
    assert standing.after_hop().suspect_left == 0


def test_a_rejection_makes_a_suspect_and_a_pass_acquits_nobody() -> None:
    rejected = VETERAN.found(REJECTED, NOW)
    assert rejected.is_suspect
    assert rejected.last_auditor == "a"
    assert (rejected.counts.passed, rejected.counts.rejected) == (0, 1)
    passed = rejected.found(PASSED, NOW)
    assert passed.suspect_left == SUSPECT_HOPS
    assert passed.record.findings == (REJECTED, PASSED)
    assert not VETERAN.found(PASSED, NOW).is_suspect


@given(st.lists(st.booleans(), max_size=60))
def test_who_hides_more_than_half_of_the_last_audits_is_hiding(shown: list[bool]) -> None:
    standing = VETERAN
    for each in shown:
        standing = standing.after_audit(shown=each)
    assert standing.shown == tuple(shown[-KEPT_SHOWN:])
    assert standing.is_hiding == (shown[-KEPT_SHOWN:].count(False) > KEPT_SHOWN / 2)
    if standing.is_hiding and not shown[-1]:
        assert standing.suspect_left == SUSPECT_HOPS


@given(st.lists(st.booleans(), max_size=60))
def test_an_entry_that_hides_more_than_half_of_its_ids_gets_no_tickets_for_a_day(
    shown: list[bool],
) -> None:
    standing, benched_until = VETERAN, 0.0
    for hour, each in enumerate(shown):
        now = NOW + 3600.0 * hour
        standing = standing.after_ids(now, shown=each)
        lately = shown[max(0, hour + 1 - KEPT_SHOWN) : hour + 1]
        if not each and lately.count(False) > KEPT_SHOWN / 2:
            benched_until = now + HIDING_SECONDS
        assert standing.is_benched(now) == (now < benched_until)
    assert not standing.is_benched(benched_until)
    assert not standing.is_suspect, "it is not said to compute anything wrong"


def test_its_owner_is_told_the_worst_of_what_is_held_against_it() -> None:
    assert VETERAN.held_against(NOW) == ""
    suspect = VETERAN.suspected()
    assert suspect.held_against(NOW) == "a suspect: its next 20 hops are all audited"
    hiding = replace(suspect, benched_until=NOW + 3600)
    assert hiding.held_against(NOW) == (
        "no tickets until 2027-01-15 09:00 UTC: as an entry it did not show what it was asked to "
        "most of its last auditors"
    )
    barred = hiding.barred("a cheat", NOW + 60, NOW)
    assert barred.held_against(NOW) == "let in nowhere until 2027-01-15 08:01 UTC: a cheat"
    assert hiding.held_against(NOW + 3600) == suspect.held_against(NOW)


def test_an_appeal_ends_the_time_without_tickets() -> None:
    hiding = VETERAN
    for _ in range(KEPT_SHOWN):
        hiding = hiding.after_ids(NOW, shown=False)
    assert hiding.is_marked(NOW)
    assert not hiding.appealed(NOW).is_benched(NOW)


def test_a_bar_wipes_the_record_and_comes_with_a_fine() -> None:
    barred = VETERAN.found(REJECTED, NOW).barred("caught", NOW + 10, NOW, owed=5)
    assert barred.is_barred(NOW)
    assert not barred.is_barred(NOW + 10)
    assert barred.record.findings == ()
    assert (barred.owed, barred.counts.slashes) == (5, 1)
    assert barred.barred("again", NOW + 1, NOW).barred_until == NOW + 10, "never shorter"
    taken = barred.collected(3)
    assert (taken.owed, taken.fined) == (0, 3)


def test_an_appeal_leaves_nothing_but_the_hops() -> None:
    standing = VETERAN.found(REJECTED, NOW).barred("caught", NOW + 10, NOW, owed=5).collected(5)
    assert standing.is_marked(NOW)
    after = standing.appealed(NOW)
    assert after == replace(VETERAN, counts=NO_AUDITS.aged(NOW))
    assert not after.is_marked(NOW)


def test_an_auditor_that_is_contradicted_again_and_again_is_hardly_asked_any_more() -> None:
    standing, days = VETERAN, []
    for _ in range(5):
        standing = standing.after_outvoted(NOW)
        days.append((standing.unheard_until - NOW) / SECONDS_A_DAY)
    assert days == [1, 4, 16, 30, 30]
    assert standing.is_marked(NOW)


def test_only_what_can_be_taken_back_marks() -> None:
    assert not VETERAN.is_marked(NOW)
    assert VETERAN.suspected().is_marked(NOW)
    assert VETERAN.found(PASSED, NOW).is_marked(NOW)
    assert VETERAN.barred("x", NOW + 1, NOW).is_marked(NOW)
    assert replace(VETERAN, fined=1).is_marked(NOW)
