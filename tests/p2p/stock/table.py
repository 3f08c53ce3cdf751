"""What fails on libp2p as it comes, and which test holds it on ours.

python -m tests.p2p.stock.table      the table as Markdown, with what each defect looks like
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Row:
    """One defect."""

    number: str
    """Its number in the notes on the library, or the attack it is part of."""
    shown_by: str
    """The function of `defects` that shows it."""
    what: str
    ours: str
    """The test that holds on our host, as FILE::FUNCTION below tests/p2p."""


ROWS = (
    Row(
        "1",
        "remote_kill",
        "a byte that is not UTF-8 ends the node",
        "test_hostile_streams.py::test_no_negotiation_ends_the_connection_or_the_node",
    ),
    Row(
        "2",
        "handler_kills_node",
        "a handler that raises ends the node",
        "test_host.py::test_a_bare_libp2p_handler_that_raises_costs_its_stream_only",
    ),
    Row(
        "3",
        "zombie_connection",
        "an end that escapes a handler leaves a dead connection",
        "test_host.py::test_a_bare_libp2p_handler_that_raises_costs_its_stream_only",
    ),
    Row("4", "plaintext", "plaintext is accepted", "test_host.py::test_only_noise_is_spoken"),
    Row(
        "6",
        "inbound_slots",
        "inbound slots never come back",
        "test_host.py::test_closed_connections_give_their_slots_back",
    ),
    Row(
        "7",
        "own_key_evicted",
        "the own key is evicted above 1000 peers",
        "test_host.py::test_knowing_many_peers_does_not_cost_the_own_key",
    ),
    Row(
        "8",
        "unbounded_negotiation",
        "a length before the handshake is unbounded",
        "fixes/test_negotiation.py::test_a_long_message_is_refused_before_its_body_is_read",
    ),
    Row(
        "9",
        "window_overrun",
        "the receive window is not enforced",
        "test_hostile_streams.py::test_200_mib_into_a_window_of_a_quarter_end_the_connection",
    ),
    Row(
        "10",
        "cancelled_write",
        "a cancelled write wedges the connection",
        "test_hosts.py::test_a_cancelled_send_costs_its_stream_only",
    ),
    Row(
        "11",
        "backpressure",
        "5 s without a window are an error",
        "test_yamux_connection.py::test_an_empty_window_is_waited_for",
    ),
    Row(
        "12",
        "local_reset",
        "a local reset does not wake the local reader",
        "test_yamux_connection.py::test_a_local_reset_wakes_whoever_reads_and_writes_here",
    ),
    Row(
        "13",
        "remote_reset",
        "a remote reset reads as a clean end",
        "test_yamux_connection.py::test_a_remote_reset_is_told_from_an_end",
    ),
    Row(
        "14",
        "read_exactly_gives_up",
        "100 partial reads are an error",
        "test_hosts.py::test_a_large_frame_passes_and_small_ones_beside_it",
    ),
    Row(
        "15",
        "frames_a_read",
        "every small read writes a frame",
        "test_yamux_connection.py::test_small_reads_write_no_credit",
    ),
    Row(
        "16",
        "full_frame_is_two_messages",
        "a full frame is two Noise messages",
        "test_yamux_connection.py::test_a_frame_fits_one_noise_message",
    ),
    Row(
        "17",
        "streams_never_forgotten",
        "closed streams are kept for ever",
        "test_hostile_streams.py::test_1_000_streams_come_and_go_and_nothing_stays",
    ),
    Row(
        "19",
        "no_keepalive",
        "a vanished peer is never noticed",
        "test_hostile_sockets.py::test_a_half_open_connection_is_watched_by_the_kernel",
    ),
    Row(
        "20",
        "muxer_choice_ignored",
        "the muxer that was asked for is not used",
        "fixes/test_fixes.py::test_applying_twice_patches_once",
    ),
    Row(
        "21",
        "dead_first_address",
        "one dead address hides the good one, for 60 s",
        "test_host.py::test_a_dead_first_address_does_not_hide_the_second",
    ),
    Row(
        "22",
        "slow_dial",
        "every dial waits 250 ms",
        "test_host.py::test_a_dial_on_this_machine_is_quick",
    ),
    Row(
        "26",
        "wildcard_advertised",
        "0.0.0.0 is advertised",
        "test_host.py::test_wildcards_are_advertised_as_real_addresses",
    ),
    Row(
        "27",
        "ipv6_has_no_address",
        "IPv6 peers have no address",
        "test_host.py::test_a_peer_over_ipv6_has_an_address",
    ),
    Row(
        "28",
        "port_taken_twice",
        "two nodes share one port without an error",
        "test_host.py::test_a_port_that_is_taken_is_refused_by_name",
    ),
    Row(
        "29",
        "dials_by_itself",
        "strangers are dialled unasked",
        "test_host.py::test_nobody_is_dialled_unasked",
    ),
    Row(
        "30",
        "slow_leaving",
        "0.2 s for each connection that is closed",
        "test_host.py::test_leaving_is_quick_and_leaves_nothing",
    ),
    Row(
        "idle sockets",
        "idle_sockets",
        "500 idle sockets keep honest peers out",
        "test_hostile_sockets.py::test_500_idle_sockets_do_not_keep_an_honest_peer_out",
    ),
    Row(
        "stream flood",
        "syn_flood",
        "streams are held for raw SYNs",
        "test_hostile_streams.py::test_10_000_raw_syns_open_a_few_streams_and_cost_nothing",
    ),
)


def shown_on_stock(row: Row) -> str | None:
    """What the defect looks like on libp2p as it comes, in a process of its own; None if fixed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.p2p.stock.defects", row.shown_by],
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )
    shown = json.loads(done.stdout.splitlines()[-1])["shown"]
    return None if shown is None else str(shown)


def main() -> None:
    """The table."""
    print("| defect | what | stock libp2p 0.8.1 | holds on ours |")  # noqa: T201
    print("|---|---|---|---|")  # noqa: T201
    for row in ROWS:
        shown = shown_on_stock(row) or "not seen"
        print(f"| {row.number} | {row.what} | {shown} | `{row.ours}` |")  # noqa: T201


if __name__ == "__main__":
    main()
