from __future__ import annotations

import pytest

from tessella.core.errors import TooManyHopBodies
from tessella.worker.http_hops.bodies import HopBodies


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
