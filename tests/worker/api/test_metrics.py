"""Prometheus' text, and what is counted."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from tessella.core.ids import PeerId
from tessella.core.peers import NodeStatus
from tessella.worker.api.metrics import MAX_CODES, Metrics
from tests.worker.api.conftest import PATHS, Node, minimal


def values(text: str) -> dict[str, float]:
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_what_happened_is_told_as_prometheus_reads_it(node: Node) -> None:
    node.health = NodeStatus.PAUSED
    counters = node.counters
    counters.answers, counters.tokens_sampled = 3, 40
    counters.failed(PeerId("12D3KooWB"))
    counters.computed(1, 0.02)
    async with node.client() as client:
        assert (await client.get("/v1/models/x")).status_code == 404
        assert (await client.post(PATHS[0], json=minimal(PATHS[0], x=1))).status_code == 400
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = values(answer.text)
    assert found["tessella_answers_total"] == 3
    assert found["tessella_tokens_sampled_total"] == 40
    assert found["tessella_positions_computed_total"] == 1
    assert found["tessella_peer_failures_total{12D3KooWB}"] == 1
    assert found["tessella_refused_total{unknown_model}"] == 1
    assert found["tessella_refused_total{unsupported_parameter}"] == 1
    assert found["tessella_step_seconds"] == 0.02
    assert found["tessella_sessions"] == 1
    assert found["tessella_kv_bytes"] == 12
    assert found["tessella_status{Paused}"] == 1
    assert sum(value for name, value in found.items() if "status" in name) == 1
    # Not in the document of this node, and not made up.
    assert "tessella_weight_bytes" not in found


def test_codes_that_peers_make_up_are_bounded(node: Node) -> None:
    metrics = Metrics(node.rooms())
    for number in range(2 * MAX_CODES):
        metrics.refused(f"x{number}")
        metrics.refused("x0")
    found = values(metrics.text().decode())
    assert sum("refused" in name for name in found) == MAX_CODES
    assert found["tessella_refused_total{x0}"] == 2 * MAX_CODES + 1


def test_what_was_paid_is_counted_where_there_is_a_book(node: Node) -> None:
    rooms = node.rooms()
    plain = values(Metrics(rooms).text().decode())
    assert not any("proofs" in name for name in plain)
    book = {"unsettled": 1, "paid": 2, "refused": 3, "credits": 4.5, "sessions": 6}
    document = {**rooms.status(), "proofs": {**book, "layer_positions": 7}}
    found = values(Metrics(replace(rooms, status=lambda: document)).text().decode())
    assert found["tessella_proofs_unsettled"] == 1
    assert found["tessella_proofs_paid_total"] == 2
    assert found["tessella_proofs_refused_total"] == 3
    assert found["tessella_proofs_credits_total"] == 4.5
    assert found["tessella_proofs_sessions_total"] == 6
    assert found["tessella_proofs_layer_positions_total"] == 7
