"""The counters, as Prometheus itself reads them."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from musivum import metrics
from musivum.config import MusivumConfig
from musivum.testing import calling
from musivum.testing_http import Door, answering, http_node
from p2p.testing import MemoryNetwork
from tessella.core.ids import ModelId
from tessella.core.messages import Announce, Ask, AskPeers
from tessella.core.peers import NodeStatus

MUSIVUM_SEED, ASKER_SEED = b"m" * 32, b"a" * 32
SEEDS = [bytes([number]) * 32 for number in (1, 2, 3)]
CONFIG = MusivumConfig(min_vram_mb=0)

Sample = tuple[str, tuple[str, ...]]


async def measured(door: Door) -> dict[Sample, float]:
    answer = await door.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    found: dict[Sample, float] = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.name.startswith("musivum_")
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, tuple(sample.labels.values()))
            assert key not in found
            found[key] = sample.value
    return found


async def test_an_empty_musivum_counts_nothing(autojump_clock: MockClock) -> None:
    async with answering(MemoryNetwork(), MUSIVUM_SEED, CONFIG) as door:
        expected: dict[Sample, float] = {
            ("musivum_connections", ()): 0.0,
            ("musivum_topology_version", ()): 0.0,
            ("musivum_nonces", ()): 0.0,
            ("musivum_identities", ()): 0.0,
            ("musivum_audits_open", ()): 0.0,
        }
        outcomes = ("drawn", "passed", "rejected", "unavailable", "expired", "slashed")
        expected |= {("musivum_audits_total", (outcome,)): 0.0 for outcome in outcomes}
        expected |= {("musivum_nodes", (status.value,)): 0.0 for status in NodeStatus}
        assert await measured(door) == expected


async def test_what_happens_is_counted(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        http_node(net, SEEDS[0], door) as a,
        http_node(net, SEEDS[1], door) as b,
        calling(net, ASKER_SEED, door.peer) as asker,
    ):
        await a.join()
        await b.join(layers=[4, 12], vram_mb=20)
        await b.call("/announce", {"status": "Paused"})
        await asker.ask(AskPeers(ModelId("")))
        await asker.ask(Ask("/nothing", b""))
        await asker.call(Announce("Healthy", 0, 0.0))
        found = await measured(door)
        assert found["musivum_nodes", ("Healthy",)] == 1
        assert found["musivum_nodes", ("Paused",)] == 1
        assert found["musivum_model_available", ("small",)] == 0
        assert found["musivum_frames_received_total", ("Ask",)] == 1
        assert found["musivum_frames_received_total", ("AskPeers",)] == 1
        assert found["musivum_frames_sent_total", ("Fail",)] == 2
        assert found["musivum_refused_total", ("unknown_route",)] == 1
        assert found["musivum_refused_total", ("unknown_worker",)] == 1
        assert found["musivum_connections", ()] == 1
        assert found["musivum_nonces", ()] == 6
        assert found["musivum_identities", ()] == 2
        version = found["musivum_topology_version", ()]
        await b.call("/announce", {"status": "Healthy"})
        later = await measured(door)
        assert later["musivum_model_available", ("small",)] == 1
        assert later["musivum_topology_version", ()] == version + 1


async def test_names_of_strangers_cannot_break_the_text(autojump_clock: MockClock) -> None:
    net = MemoryNetwork()
    name = 'a"} 1\\n{b="'
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        http_node(net, SEEDS[0], door) as node,
    ):
        await node.join(model_id=name)
        found = await measured(door)
        assert found["musivum_model_available", (name,)] == 0


async def test_a_stranger_cannot_make_any_number_of_series(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MAX_MODELS", 2)
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM_SEED, CONFIG) as door,
        http_node(net, SEEDS[0], door) as a,
        http_node(net, SEEDS[1], door) as b,
        http_node(net, SEEDS[2], door) as c,
    ):
        for number, node in enumerate((a, b, c)):
            await node.join(model_id=f"model-{number}")
        found = await measured(door)
        names = [labels for name, labels in found if name == "musivum_model_available"]
        assert names == [("model-0",), ("model-1",)]


async def test_refusals_over_http_are_counted_once_each(autojump_clock: MockClock) -> None:
    async with answering(MemoryNetwork(), MUSIVUM_SEED, CONFIG) as door:
        for path, status in (
            ("/nowhere", 404),
            ("/weights/manifest?model_id=x", 404),
            ("/api/v1/assignment?model_id=x", 400),
            ("/reputation?all=true", 401),
        ):
            assert (await door.client.get(path)).status_code == status
        assert (await door.client.post("/peers")).status_code == 405
        found = await measured(door)
        codes = ("unknown_route", "unknown_manifest", "bad_request", "admin_only")
        for code in (*codes, "method_not_allowed"):
            assert found["musivum_refused_total", (code,)] == 1
