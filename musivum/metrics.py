"""Counters for an operator's own monitoring, as Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from musivum.doors.tracker import Rooms, Tracker
from musivum.nodes.availability import unavailable
from musivum.pages.mesh import typical_node
from p2p.peers import Host
from tessella.core.peers import NodeStatus

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
# Each model is a series, and a stranger may register any name.
MAX_MODELS = 500


class Metrics:
    """Everything is counted where it happens and collected when it is asked for."""

    def __init__(self, host: Host, rooms: Rooms, tracker: Tracker) -> None:
        self._host = host
        self._rooms = rooms
        self._tracker = tracker
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def refused(self, code: str) -> None:
        """Count a refusal over HTTP with those over libp2p."""
        self._tracker.refused[code] += 1

    def text(self) -> bytes:
        """The text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """What there is, in Prometheus' own values."""
        books = self._rooms.books
        nodes = books.roster.nodes()
        status = Counter(node.row.status for node in nodes)
        yield _gauge(
            "musivum_nodes",
            "Nodes by status.",
            "status",
            {each.value: status[each.value] for each in NodeStatus},
        )
        yield _gauge("musivum_model_available", "1 if it can be asked.", "model", self._available())
        yield _counter("musivum_frames_received", "Frames by kind.", "kind", self._tracker.received)
        yield _counter("musivum_frames_sent", "Frames by kind.", "kind", self._tracker.sent)
        yield _counter("musivum_refused", "Refusals by code.", "code", self._tracker.refused)
        audits = Counter(self._rooms.audits.counters())
        is_open = audits.pop("open", 0)
        yield _counter("musivum_audits", "Audits by what became of them.", "outcome", audits)
        for name, text, value in (
            ("musivum_audits_open", "Audits that are drawn and not decided.", is_open),
            ("musivum_connections", "Peers a connection is open to.", len(self._host.connected())),
            ("musivum_topology_version", "Rises with each change.", books.roster.version),
            ("musivum_nonces", "Nonces that are remembered.", len(self._rooms.admission.nonces)),
            ("musivum_identities", "Peers with a reputation.", len(books.reputations)),
        ):
            yield GaugeMetricFamily(name, text, value=value)

    def _available(self) -> dict[str, int]:
        books, now = self._rooms.books, self._rooms.books.clocks.now()
        found = {}
        for model in books.manifests.foremost(MAX_MODELS):
            node, nodes = typical_node(books, model), books.roster.nodes(model)
            down = node is None or unavailable(model, nodes, node.terms, now) is not None
            found[str(model)] = int(not down)
        return found


def _gauge(name: str, text: str, label: str, values: dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _counter(name: str, text: str, label: str, values: Counter[str]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family
