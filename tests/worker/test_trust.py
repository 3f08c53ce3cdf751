from __future__ import annotations

import pytest

from tessella.core.errors import OutOfTurn, PeerReset, RemoteFailure, TooManySessions
from tessella.core.ids import PeerId
from tessella.worker.trust import Trust

PEER = PeerId("the peer")


def lost(*errors: Exception) -> tuple[list[tuple[str, str]], Exception]:
    """What is blamed, and the last error that left, when one conversation sees these."""
    blamed: list[tuple[str, str]] = []
    trust = Trust(PEER, lambda peer, error: blamed.append((peer, error.code)))
    for error in errors:
        with pytest.raises((type(error), RemoteFailure)) as caught, trust:
            raise error
    return blamed, caught.value


def test_a_peer_that_went_away_is_blamed_once_by_all_who_see_it() -> None:
    blamed, left = lost(PeerReset("gone"), PeerReset("gone"), OutOfTurn("what?"))
    assert blamed == [(PEER, "peer_reset")]
    assert isinstance(left, RemoteFailure)


def test_a_broken_rule_is_not_passed_on_as_the_askers() -> None:
    blamed, left = lost(OutOfTurn("what?"))
    assert blamed == [(PEER, "out_of_turn")]
    assert isinstance(left, RemoteFailure)
    assert (left.code, left.retry, str(left)) == ("out_of_turn", True, "the peer: what?")


@pytest.mark.parametrize(
    "error",
    [TooManySessions("full"), RemoteFailure("position_gap", "", retry=False), ValueError("a bug")],
)
def test_what_is_not_the_peers_fault_passes_without_blame(error: Exception) -> None:
    assert lost(error) == ([], error)
