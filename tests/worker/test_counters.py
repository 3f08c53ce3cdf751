from __future__ import annotations

import pytest

from tessella.core.errors import LocalError, PeerSilent, RemoteFailure
from tessella.core.ids import PeerId, SessionId
from tessella.core.messages import Hidden
from tessella.core.tensors import WireTensor
from tessella.worker.counters import MAX_COUNTED_PEERS, STEPS_KEPT, Counters

HIDDEN = Hidden(SessionId(b"s" * 16), 0, 0, WireTensor("f32", (2, 3), bytes(24)), False)


def test_hidden_states_are_counted_by_peer_in_frames_and_bytes_of_tensor() -> None:
    counters = Counters()
    for peer in ("a", "a", "b"):
        counters.sent(PeerId(peer), HIDDEN)
    counters.received(PeerId("a"), HIDDEN)
    assert counters.hidden_frames_sent == {"a": 2, "b": 1}
    assert counters.hidden_bytes_sent == {"a": 48, "b": 24}
    assert (counters.hidden_frames_received, counters.hidden_bytes_received) == (
        {"a": 1},
        {"a": 24},
    )


def test_peers_beyond_the_table_are_not_counted_and_those_in_it_still_are() -> None:
    counters = Counters()
    for number in range(MAX_COUNTED_PEERS + 5):
        counters.failed(PeerId(str(number)))
    counters.failed(PeerId("0"))
    assert len(counters.peer_failures) == MAX_COUNTED_PEERS
    assert counters.peer_failures[PeerId("0")] == 2


def test_the_step_time_is_the_median_of_the_last_steps() -> None:
    counters = Counters()
    assert counters.step_ms == 0.0
    for _ in range(STEPS_KEPT):
        counters.computed(1, 9.0)
    for _ in range(STEPS_KEPT):
        counters.computed(1, 0.002)
    assert counters.step_ms == 2.0
    counters.forget_steps()
    assert counters.step_ms == 0.0


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (PeerSilent("nothing for 10 s"), "peer_silent: nothing for 10 s"),
        (RemoteFailure("busy", "x" * 1000, retry=True), "busy: " + "x" * 194),
        (ZeroDivisionError("a path of ours"), "internal_error: " + LocalError("").told()),
    ],
)
def test_what_the_mesh_did_not_hear_is_counted_and_the_last_reason_kept(
    error: Exception, shown: str
) -> None:
    counters = Counters()
    counters.mesh_failed(PeerSilent("an earlier one"))
    counters.mesh_failed(error)
    assert (counters.mesh_errors, counters.last_mesh_error) == (2, shown)
