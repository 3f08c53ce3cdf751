"""What anyone may know of a mesh, as tables and as JSON."""

from __future__ import annotations

import json
from typing import Any

from musivum.bodies.mesh import PeerBody

PEER = PeerBody(
    peer_id="12D3KooWabc",
    model_id="toy",
    status="Healthy",
    layer_ranges=[(2, 4)],
    total_layers=6,
    http_api_url=None,
    http_addr=None,
    p2p_addrs=["/ip4/192.0.2.1/tcp/4001"],
    device="cpu",
    dtype="f32",
    queue_depth=3,
    step_ms=1.25,
    canary=False,
    progress=None,
    reported=0,
    confirmed=0,
    contract="c0ffee",
).model_dump(mode="json")
STATUS = {
    "role": "musivum",
    "version": "0.1.0",
    "peer_id": "12D3KooWhub",
    "addrs": ["/ip4/192.0.2.9/tcp/4001/p2p/12D3KooWhub", "/ip4/192.0.2.8/tcp/4001"],
    "uptime_seconds": 12.5,
    "protocols": [],
    "nodes": {"total": 3, "by_status": {"Healthy": 2, "Offline": 1}},
    "models": [
        {
            "model": "toy",
            "health": "degraded",
            "total_layers": 6,
            "nodes": 3,
            "holes": [{"start": 4, "stop": 6, "claim_mb": 9}],
        }
    ],
    "frames": {"received": {}, "sent": {}},
}


def test_peers_are_a_table_with_a_node_a_line(command: Any, fake: Any) -> None:
    fake.say("GET", "/peers", [PEER])
    ended = command("peers")
    assert ended.status == 0
    (line,) = [line for line in ended.out.splitlines() if "12D3KooWabc" in line]
    for cell in ("toy", "2:4 of 6", "Healthy", "cpu", "f32", "3", "1.25", "192.0.2.1"):
        assert cell in line


def test_peers_of_one_model_are_asked_for(command: Any, fake: Any) -> None:
    fake.say("GET", "/peers", [])
    command("peers", "--model", "org/a&b")
    assert dict(fake.last.url.params) == {"model_id": "org/a&b"}
    command("peers")
    assert dict(fake.last.url.params) == {}


def test_peers_as_json_are_what_musivum_said(command: Any, fake: Any) -> None:
    fake.say("GET", "/peers", [PEER])
    ended = command("peers", "--json")
    assert json.loads(ended.out) == [PEER]
    assert ended.out.count("\n") == 1


def test_what_a_node_calls_itself_cannot_steer_the_terminal(command: Any, fake: Any) -> None:
    fake.say("GET", "/peers", [{**PEER, "model_id": "a\x1b[2J\nb\x9b[red]"}])
    out = command("peers").out
    assert "a[2J b[red]" in out
    assert "\x1b" not in out
    assert "\x9b" not in out


def test_status_tells_where_it_is_who_is_there_and_what_is_missing(command: Any, fake: Any) -> None:
    fake.say("GET", "/status", STATUS)
    ended = command("status")
    assert ended.status == 0
    lines = [line.split() for line in ended.out.splitlines()]
    assert ["peer", "id", "12D3KooWhub"] in lines
    assert ["addrs", STATUS["addrs"][0]] in lines  # type: ignore[index]
    assert [STATUS["addrs"][1]] in lines  # type: ignore[index]
    assert ["nodes", "3", "Healthy", "2", "Offline", "1"] in lines
    assert ["toy", "degraded", "6", "3", "4:6"] in lines


def test_status_as_json_is_the_document(command: Any, fake: Any) -> None:
    fake.say("GET", "/status", STATUS)
    assert json.loads(command("status", "--json").out) == STATUS
