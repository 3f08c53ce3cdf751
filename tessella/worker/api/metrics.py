"""Counters for an owner's own monitoring, as Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from tessella.core.peers import NodeStatus
from tessella.worker.api.rooms import Rooms
from tessella.worker.counters import Counters

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
# Codes of errors are our own, but a peer may report one that is not.
MAX_CODES = 256

_COUNTED: tuple[tuple[str, str, Callable[[Counters], int]], ...] = (
    ("answers", "Answers that were completed.", lambda of: of.answers),
    ("sessions_opened", "Sessions that were opened.", lambda of: of.sessions_opened),
    ("tokens_sampled", "Tokens that were chosen here.", lambda of: of.tokens_sampled),
    ("positions_computed", "Positions that were computed.", lambda of: of.positions_computed),
    ("mesh_errors", "Times the mesh did not hear of the node.", lambda of: of.mesh_errors),
)
_BY_PEER: tuple[tuple[str, str, Callable[[Counters], Mapping[Any, int]]], ...] = (
    ("hop_frames_sent", "Hidden states sent.", lambda of: of.hidden_frames_sent),
    ("hop_bytes_sent", "Bytes of hidden states sent.", lambda of: of.hidden_bytes_sent),
    ("hop_frames_received", "Hidden states received.", lambda of: of.hidden_frames_received),
    ("hop_bytes_received", "Bytes of hidden states received.", lambda of: of.hidden_bytes_received),
    ("peer_failures", "Times a peer failed the node.", lambda of: of.peer_failures),
)
# Of the status document: plain numbers, where they are there.
_GAUGES = {
    "uptime_seconds": "Seconds since the node started.",
    "claim_mb": "The claim.",
    "weight_bytes": "Bytes of weights in memory.",
    "kv_bytes": "Bytes of KV that are reserved.",
    "kv_limit_bytes": "Bytes of KV that may be reserved.",
}


# Of its `proofs`. They count since the book was begun, not since the node was started.
_PROOFS = {
    "paid": "Proofs that were paid.",
    "refused": "Proofs that were refused.",
    "sessions": "Sessions that were served for a ticket.",
    "layer_positions": "Layers times positions that were computed in them.",
    "credits": "Credits that were paid.",
}


class Metrics:
    """Everything is counted where it happens and collected when it is asked for."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._refused: Counter[str] = Counter()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def refused(self, code: str) -> None:
        """Count an error that was answered."""
        if code in self._refused or len(self._refused) < MAX_CODES:
            self._refused[code] += 1

    def text(self) -> bytes:
        """The text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """What there is, in Prometheus' own values."""
        counters, document = self._rooms.counters, self._rooms.status()
        for name, text, count in _COUNTED:
            yield CounterMetricFamily(f"tessella_{name}", text, value=count(counters))
        for name, text, by_peer in _BY_PEER:
            yield _counter(f"tessella_{name}", text, "peer", by_peer(counters))
        yield _counter("tessella_refused", "Errors answered, by code.", "code", self._refused)
        yield GaugeMetricFamily(
            "tessella_step_seconds", "Median of the last decode steps.", counters.step_ms / 1000
        )
        yield GaugeMetricFamily(
            "tessella_sessions", "Sessions that hold KV.", len(document.get("sessions", ()))
        )
        yield from _proofs(document.get("proofs") or {})
        for name, text in _GAUGES.items():
            if isinstance(value := document.get(name), int | float):
                yield GaugeMetricFamily(f"tessella_{name}", text, value)
        yield self._status()

    def _status(self) -> GaugeMetricFamily:
        family = GaugeMetricFamily("tessella_status", "1 of the status it has.", labels=["status"])
        current = self._rooms.health()
        for each in NodeStatus:
            family.add_metric([each.value], int(each is current))
        return family


def _proofs(found: Mapping[str, Any]) -> Iterator[Metric]:
    for name, text in _PROOFS.items():
        if name in found:
            yield CounterMetricFamily(f"tessella_proofs_{name}", text, value=found[name])
    if "unsettled" in found:
        text = "Proofs that are not settled yet."
        yield GaugeMetricFamily("tessella_proofs_unsettled", text, found["unsettled"])


def _counter(name: str, text: str, label: str, values: Mapping[Any, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([str(key)], value)
    return family
