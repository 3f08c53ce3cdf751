"""What a node tells about itself to whoever asks: no prompt, no token, no session id."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import trio

import tessella
from p2p.streams import FrameStream
from tessella.core.errors import OutOfTurn
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import AskStatus, Status
from tessella.engine.memory import free_memory
from tessella.engine.shard import Shard
from tessella.worker.config import WorkerConfig
from tessella.worker.counters import Counters
from tessella.worker.http_hops.asks import MAX_HOP_BODY
from tessella.worker.http_hops.bodies import HopBodies
from tessella.worker.proofs.totals import Totals
from tessella.worker.state import NodeState

ASK_TIMEOUT = 10.0

Document = dict[str, Any]


async def answer_status(stream: FrameStream, document: Document) -> None:
    """Handle one status stream: one question, one document."""
    asked = await stream.receive(ASK_TIMEOUT)
    if not isinstance(asked, AskStatus):
        raise OutOfTurn(f"{type(asked).__name__} in place of a status request")
    await stream.send(Status(json.dumps(document).encode()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Where the facts of a status document are kept."""

    ourselves: PeerId
    config: WorkerConfig
    state: NodeState
    counters: Counters
    bodies: HopBodies
    api_url: str
    """Where others reach this node over HTTP; empty if they do not."""
    way: Callable[[], str]
    """How the mesh was reached last."""
    proofs: Callable[[], Totals | None]
    """What the node's book adds up to; None where it has none."""


def node_status(facts: Facts) -> Document:
    """The status document of a node. Keys are only ever added."""
    config, state, counters = facts.config, facts.state, facts.counters
    held, moving_to = state.layers, state.moving_to
    return {
        "role": "worker",
        "version": tessella.__version__,
        "peer_id": facts.ourselves,
        "uptime_seconds": round(trio.current_time() - state.started_at, 3),
        "status": state.status.value,
        "model": config.model,
        "canary_mode": config.canary_mode,
        "layer_range": [held.start, held.stop] if held else None,
        "layer_ranges": [[held.start, held.stop]] if held else [],
        "assignment": _assignment(config, held),
        "moving_to": [moving_to.start, moving_to.stop] if moving_to else None,
        "loading": {
            "loaded_bytes": state.load.loaded_bytes,
            "total_bytes": state.load.total_bytes,
        },
        "claim_mb": config.claim_mb,
        "api_url": facts.api_url or None,
        "tracker": facts.way(),
        "hop_timeout_secs": config.hop_timeout,
        "max_concurrent_hop_bodies": facts.bodies.limit,
        "hop_bodies_in_flight": facts.bodies.in_flight,
        "max_hop_body_bytes": MAX_HOP_BODY,
        "paused_by": state.pause.why.value if state.pause else None,
        "resumes_in_seconds": state.pause.seconds_left(trio.current_time())
        if state.pause
        else None,
        "out_of_memory": state.memory.count,
        "privacy": "the nodes of a chain can read the prompts and answers that pass through them",
        **_served(state),
        "proofs": _proofs(facts.proofs()),
        **_counted(counters),
    }


def _proofs(totals: Totals | None) -> Document | None:
    if totals is None:
        return None
    return {
        "unsettled": totals.unsettled,
        "paid": totals.paid,
        "refused": totals.refused,
        "credits": totals.credits,
        "sessions": totals.sessions,
        "layer_positions": totals.layer_positions,
    }


def _assignment(config: WorkerConfig, held: LayerRange | None) -> Document | None:
    if held is None:
        return None
    return {
        "model_repo": config.model,
        "layer_ranges": [[held.start, held.stop]],
        "replica_group_id": 0,
        "expert_range": None,
    }


def _gpu(shard: Shard) -> Document:
    """The device that computes; its memory is what others leave of it too."""
    return {"device": shard.device.value, "free_bytes": free_memory(shard.device.value)}


def _served(state: NodeState) -> Document:
    if state.loaded is None:
        return {
            "tensors": [],
            "sessions": [],
            "tiers": {},
            "kv_bytes": 0,
            "kv_limit_bytes": 0,
            "gpu": None,
        }
    entry = state.loaded.entry
    shard, sessions, limits = entry.served.shard, entry.sessions, entry.prompts.limits
    return {
        "device": shard.device.value,
        "gpu": _gpu(shard),
        "hidden_size": shard.shape.hidden,
        "max_input_tokens": limits.max_input_tokens,
        "max_input_tokens_source": limits.source,
        "max_body_bytes": limits.max_body_bytes,
        "dtype": shard.dtype.value,
        "total_layers": shard.shape.layers,
        "context_size": entry.served.context,
        "weight_bytes": shard.weight_bytes,
        "tensors": [
            {
                "name": one.name,
                "shape": list(one.shape),
                "dtype": one.dtype.value,
                "bytes": one.nbytes,
            }
            for one in shard.tensors
        ],
        "sessions": [
            {"state": lease.state.value, "held": lease.held, "capacity": lease.capacity}
            for lease in sessions.leases()
        ],
        "tiers": {tier.value: count for tier, count in sessions.tiers.items()},
        "kv_bytes": sessions.kv_bytes,
        "kv_limit_bytes": sessions.kv_limit,
    }


def _counted(counters: Counters) -> Document:
    return {
        "hops": {
            "frames_sent": dict(counters.hidden_frames_sent),
            "bytes_sent": dict(counters.hidden_bytes_sent),
            "frames_received": dict(counters.hidden_frames_received),
            "bytes_received": dict(counters.hidden_bytes_received),
        },
        "peer_failures": dict(counters.peer_failures),
        "mesh_errors": counters.mesh_errors,
        "last_mesh_error": counters.last_mesh_error,
        "sessions_opened": counters.sessions_opened,
        "positions_computed": counters.positions_computed,
        "tokens_sampled": counters.tokens_sampled,
        "answers": counters.answers,
        "step_ms": round(counters.step_ms, 3),
    }
