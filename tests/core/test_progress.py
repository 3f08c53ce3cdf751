"""Slow is not silent: only a counter that stands still while something is owed is."""

from __future__ import annotations

from tessella.core.progress import Watch


def test_a_neighbour_that_moves_is_never_silent_however_long_it_takes() -> None:
    watch = Watch(limit=10.0)
    watch.send(512, 0.0, answered=False)
    for second in range(1, 100):
        watch.hear(second, 0, float(second))
        assert not watch.silent(float(second) + 9.9)


def test_a_counter_that_stands_still_for_the_limit_is_silence() -> None:
    watch = Watch(limit=10.0)
    watch.send(1, 0.0, answered=False)
    watch.hear(7, 0, 1.0)
    watch.hear(7, 0, 5.0)
    assert not watch.silent(10.9)
    assert watch.silent(11.0)


def test_nothing_is_owed_before_work_was_sent_nor_after_it_was_done() -> None:
    watch = Watch(limit=10.0)
    assert not watch.silent(1000.0)
    watch.send(5, 1000.0, answered=False)
    watch.hear(3, 5, 1001.0)
    assert not watch.silent(5000.0)


def test_a_report_that_crossed_with_new_work_does_not_end_the_watch() -> None:
    watch = Watch(limit=10.0)
    watch.send(5, 0.0, answered=False)
    watch.send(6, 1.0, answered=True)
    watch.hear(3, 5, 1.1)  # said before position 6 arrived there
    assert watch.silent(11.2)


def test_more_work_does_not_excuse_a_neighbour_that_is_stuck() -> None:
    watch = Watch(limit=10.0)
    for chunk in range(1, 12):
        watch.send(chunk * 128, float(chunk), answered=False)
    assert watch.silent(11.0)


def test_a_token_answers_all_that_was_sent_before_it() -> None:
    watch = Watch(limit=10.0)
    watch.send(10, 0.0, answered=False)
    watch.rest()
    assert not watch.silent(100.0)
    watch.send(11, 200.0, answered=True)
    assert not watch.silent(209.0)
    assert watch.silent(210.0)


def test_positions_sent_again_after_a_roll_back_are_owed_again() -> None:
    watch = Watch(limit=10.0)
    watch.send(10, 0.0, answered=False)
    watch.hear(1, 10, 1.0)
    watch.send(10, 2.0, answered=False)
    assert watch.waiting
    assert watch.silent(12.0)


def test_what_a_session_holds_already_is_not_owed() -> None:
    watch = Watch(limit=10.0)
    watch.send(108, 0.0, answered=False, start=100)
    assert watch.done == 100
    watch.hear(1, 108, 1.0)
    assert not watch.waiting
