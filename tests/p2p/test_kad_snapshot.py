"""Peers on disk: they come back, and a file that is broken is ignored with a word."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from p2p.kad_snapshot import MAX_BYTES, load_peers, save_peers
from tessella.core.addresses import PeerAddress
from tessella.core.identity import peer_id_of

A = PeerAddress(peer_id_of(bytes(32)), ("/ip4/10.0.0.1/tcp/4001", "/dns4/example.org/tcp/80"))
B = PeerAddress(peer_id_of(b"\1" * 32), ("/ip4/10.0.0.2/tcp/4001",))


def test_peers_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "made" / "peers.json"
    save_peers(path, [A, B])
    assert load_peers(path) == (A, B)
    save_peers(path, [B])
    assert load_peers(path) == (B,)
    assert [file.name for file in path.parent.iterdir()] == ["peers.json"]


def test_no_file_is_no_peers_and_no_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert load_peers(tmp_path / "none") == ()
    assert caplog.records == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"peers": 1}',
        '{"peers": [1]}',
        '{"peers": ["/ip4/1.2.3.4/tcp/1"]}',
        json.dumps({"peers": [B.full()[0]] * 5000}),
        " " * (MAX_BYTES + 1),
        "[" * 100_000,
        "\udcff",
    ],
)
def test_a_broken_snapshot_is_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    path = tmp_path / "peers.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with caplog.at_level(logging.WARNING):
        assert load_peers(path) == ()
    (line,) = caplog.records
    assert str(path) in line.getMessage()


def test_a_disk_that_refuses_is_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        save_peers(tmp_path / "file" / "peers.json", [A])
    assert len(caplog.records) == 1
