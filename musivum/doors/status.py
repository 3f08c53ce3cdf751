"""What musivum tells anyone who asks, as one JSON document.

The counters of frames are there so that anyone can see which kinds passed: `Hidden`, which
carries a tensor, is never among them.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import trio

from musivum.audit_room import AuditRoom
from musivum.doors.tracker import Tracker
from musivum.nodes.books import Books
from musivum.pages.mesh import typical_node
from p2p.peers import Host
from p2p.streams import FrameStream
from tessella import __version__
from tessella.core.errors import OutOfTurn, PeerClosed, PeerSilent
from tessella.core.ids import ModelId
from tessella.core.messages import AskStatus, Status
from tessella.core.plan import claim_for
from tessella.core.route import coverage

# A stream on which nobody asks anything.
IDLE_SECONDS = 60.0
# A stranger may register any number of names; a document names as many as a frame holds.
MAX_MODELS = 500


@dataclass(frozen=True, slots=True)
class StatusPage:
    """The facts a document is made of, and the handler that answers with it."""

    host: Host
    books: Books
    tracker: Tracker
    audits: AuditRoom
    started: float
    """By trio's clock."""

    async def answer(self, stream: FrameStream) -> None:
        """Serve one stream: a Status for every AskStatus. Raises OutOfTurn for anything else."""
        while True:
            try:
                message = await stream.receive(timeout=IDLE_SECONDS)
            except (PeerClosed, PeerSilent):
                return
            self.tracker.received[type(message).__name__] += 1
            await self.tracker.pace(stream.peer_id)
            if not isinstance(message, AskStatus):
                raise OutOfTurn(f"{type(message).__name__} is not what a status is asked with")
            self.tracker.sent[Status.__name__] += 1
            await stream.send(Status(json.dumps(self.document()).encode()))

    def document(self) -> dict[str, Any]:
        """The document, as plain values."""
        nodes = self.books.roster.nodes()
        by_status = Counter(node.row.status for node in nodes)
        return {
            "role": "musivum",
            "version": __version__,
            "peer_id": self.host.address.peer_id,
            "addrs": list(self.host.address.full()),
            "uptime_seconds": round(trio.current_time() - self.started, 3),
            "protocols": sorted(self.host.protocols),
            "nodes": {"total": len(nodes), "by_status": dict(sorted(by_status.items()))},
            "models": [self._model(model) for model in self.books.manifests.foremost(MAX_MODELS)],
            "frames": {
                "received": dict(sorted(self.tracker.received.items())),
                "sent": dict(sorted(self.tracker.sent.items())),
            },
            "audits": self.audits.counters(),
        }

    def _model(self, model: ModelId) -> dict[str, Any]:
        """A model: its health, its holes with the claim each would take, the prices behind them."""
        nodes = self.books.roster.nodes(model)
        terms = (typical_node(self.books, model) or nodes[0]).terms
        found = coverage([node.row for node in nodes], terms.layers)
        return {
            "model": model,
            "health": found.health.value,
            "total_layers": terms.layers,
            "nodes": len(nodes),
            "holes": [
                {"start": hole.start, "stop": hole.stop, "claim_mb": claim_for(terms, hole)}
                for hole in found.holes
            ],
            "loading": [[piece.start, piece.stop] for piece in found.loading],
            "mem_per_layer_mb": round(terms.mem_per_layer_mb, 3),
            "weights_per_layer_mb": round(terms.weights_per_layer_mb, 3),
            "kv_per_layer_mb": round(terms.kv_per_layer_mb, 3),
            "global_tensor_mb": round(terms.global_tensor_mb, 3),
            "usable_vram_pct": terms.usable_vram_pct,
            "min_vram_mb": terms.min_vram_mb,
        }
