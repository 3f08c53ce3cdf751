from __future__ import annotations

import pytest

from tessella.core.errors import TooManyHopBodies
from tessella.worker.http_hops.asks import MAX_HOP_BODY
from tessella.worker.http_hops.bodies import SMALL_BODY, HopBodies, that_fit


@pytest.mark.parametrize(
    ("free", "bodies"),
    [
        (-1, 1),
        (0, 1),
        (2 * MAX_HOP_BODY, 1),
        (6 * MAX_HOP_BODY - 1, 2),
        (6 * MAX_HOP_BODY, 3),
        (1 << 50, 8),
    ],
)
def test_as_many_as_fit_twice_into_free_memory(free: int, bodies: int) -> None:
    assert that_fit(8, free) == bodies


@pytest.mark.parametrize(("length", "places"), [(None, 1), (SMALL_BODY + 1, 1), (SMALL_BODY, 0)])
def test_a_small_body_is_read_beside_the_others(length: int | None, places: int) -> None:
    bodies = HopBodies(1)
    with bodies.place(length):
        assert bodies.in_flight == places
        with bodies.place(0), bodies.place(SMALL_BODY):
            assert bodies.in_flight == places
    assert bodies.in_flight == 0


def test_one_body_too_many_is_refused_and_a_place_is_given_back() -> None:
    bodies = HopBodies(2)
    with bodies.place():
        with bodies.place():
            assert bodies.in_flight == 2
            with pytest.raises(TooManyHopBodies, match="reads 2 hop bodies"), bodies.place():
                pass
            assert bodies.in_flight == 2
        with bodies.place():
            pass
    assert bodies.in_flight == 0
    with pytest.raises(OSError), bodies.place():  # noqa: PT011 - whatever a reader raises
        raise OSError
    assert bodies.in_flight == 0


def test_a_full_node_says_so_and_asks_to_be_asked_again() -> None:
    with pytest.raises(TooManyHopBodies) as caught, HopBodies(0).place():
        pass
    assert (caught.value.status, caught.value.code, caught.value.retry) == (
        503,
        "too_many_hop_bodies",
        True,
    )
