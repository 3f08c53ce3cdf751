from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadConfig
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.worker.config import WorkerConfig

MUSIVUM = PeerAddress(Identity(b"m" * 32).peer_id, ("/ip4/10.0.0.1/tcp/4001",))


def config(**changes: Any) -> WorkerConfig:
    known: dict[str, Any] = {
        "musivum": (MUSIVUM,),
        "model": ModelId("toy"),
        "weights": Path("toy"),
        "claim_mb": 1,
    }
    return WorkerConfig(**known | changes)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("claim_mb", 0),
        ("context", 0),
        ("slots", 0),
        ("max_sessions", -1),
        ("prefill_chunk", 0),
        ("hop_timeout", 0.0),
        ("hop_timeout", -1.0),
        ("hop_timeout", float("nan")),
        ("drain_seconds", -1.0),
        ("drain_seconds", float("nan")),
        ("drain_seconds", float("inf")),
        ("max_hop_bodies", 0),
        ("max_input_tokens", 0),
        ("oom_streak", 0),
        ("oom_window_seconds", 0.0),
        ("registration_grace_seconds", -1.0),
        ("registration_grace_seconds", float("inf")),
        ("wal_checkpoint_seconds", 0.0),
        ("auto_pause_percent", 0),
        ("auto_pause_percent", 101),
        ("model_cache_prune", "yes"),
        ("log_format", "xml"),
        ("orchestrator_url", "tracker1"),
        ("public_api_url", "//node"),
        ("hub", "huggingface.co"),
    ],
)
def test_a_value_out_of_its_rule_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(BadConfig, match=key):
        config(**{key: value})


def test_the_smallest_values_are_taken() -> None:
    config(context=1, slots=1, max_sessions=1, prefill_chunk=1, hop_timeout=0.1, drain_seconds=0.0)


@pytest.mark.parametrize(
    ("changes", "culprit"),
    [
        ({"musivum": ()}, "musivum, or kademlia"),
        ({"musivum": (), "kademlia": True}, "layers"),
        ({"bootstrap": (MUSIVUM,)}, "bootstrap"),
    ],
)
def test_a_node_without_a_mesh_is_refused_by_what_it_lacks(
    changes: dict[str, Any], culprit: str
) -> None:
    with pytest.raises(BadConfig, match=culprit):
        config(**changes)


def test_a_node_of_the_swarm_needs_no_musivum() -> None:
    node = config(musivum=(), kademlia=True, layers=LayerRange(0, 2), bootstrap=(MUSIVUM,))
    assert node.musivum == ()


def test_the_url_of_a_musivum_is_a_mesh() -> None:
    node = config(musivum=(), orchestrator_url="https://tracker1.example")
    assert (node.musivum, node.layers) == ((), None)


def test_a_node_of_a_test_opens_no_port_of_its_own_accord() -> None:
    assert config().http == ()
