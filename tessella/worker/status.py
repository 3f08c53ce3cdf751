"""What a node tells about itself to whoever asks: no prompt, no token, no session id."""

from __future__ import annotations

import json
from typing import Any

import trio

import tessella
from p2p.streams import FrameStream
from tessella.core.errors import OutOfTurn
from tessella.core.messages import AskStatus, Status
from tessella.worker.config import WorkerConfig
from tessella.worker.counters import Counters
from tessella.worker.state import NodeState

ASK_TIMEOUT = 10.0

Document = dict[str, Any]


async def answer_status(stream: FrameStream, document: Document) -> None:
    """Handle one status stream: one question, one document."""
    asked = await stream.receive(ASK_TIMEOUT)
    if not isinstance(asked, AskStatus):
        raise OutOfTurn(f"{type(asked).__name__} in place of a status request")
    await stream.send(Status(json.dumps(document).encode()))


def node_status(
    peer_id: str, config: WorkerConfig, state: NodeState, counters: Counters
) -> Document:
    """The status document of a node. Keys are only ever added."""
    held, moving_to = state.layers, state.moving_to
    return {
        "role": "worker",
        "version": tessella.__version__,
        "peer_id": peer_id,
        "uptime_seconds": round(trio.current_time() - state.started_at, 3),
        "status": state.status.value,
        "model": config.model,
        "layer_range": [held.start, held.stop] if held else None,
        "moving_to": [moving_to.start, moving_to.stop] if moving_to else None,
        "loading": {
            "loaded_bytes": state.load.loaded_bytes,
            "total_bytes": state.load.total_bytes,
        },
        "claim_mb": config.claim_mb,
        "hop_timeout_secs": config.hop_timeout,
        "privacy": "the nodes of a chain can read the prompts and answers that pass through them",
        **_served(state),
        **_counted(counters),
    }


def _served(state: NodeState) -> Document:
    if state.loaded is None:
        return {"tensors": [], "sessions": [], "kv_bytes": 0, "kv_limit_bytes": 0}
    entry = state.loaded.entry
    shard, sessions = entry.served.shard, entry.sessions
    return {
        "device": shard.device.value,
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
