"""The file that the wizard writes: what TOML reads is what was answered, whatever was answered."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessella.cli.wizard.answers import MAX_LINE, Answers, Value, config_text, toml_value

ANSWERS = Answers(
    orchestrator="https://tracker.example",
    model="Qwen/Qwen2.5-0.5B-Instruct",
    device="cuda",
    claim_mb=2048,
    models_dir="./models",
    key=Path("/home/operator/.config/tessella/node.key"),
    api_port=8080,
    p2p_port=9080,
)
SWARM = Answers(
    bootstrap=(
        "/ip4/203.0.113.7/tcp/4001/p2p/12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5",
    ),
    layers="0:12",
    model="small",
    device="cpu",
    claim_mb=300,
    weights="./small.gguf",
    key=Path("/k"),
    api_port=80,
    p2p_port=81,
)
GOLDEN = """\
# Written by the wizard of tessella-worker; docs/config.md has every key.

# whom the node registers with
orchestrator_url = "https://tracker.example"
# the identity, and its balance: keep a copy
keypair_path     = "/home/operator/.config/tessella/node.key"
# the model it serves
default_model    = "Qwen/Qwen2.5-0.5B-Instruct"

[worker]
vram_mb    = 2048        # the claim: MB for layers and KV
models_dir = "./models"  # where models lie, by name
api_host   = "0.0.0.0"   # all interfaces
api_port   = 8080        # HTTP, for clients
p2p_host   = "0.0.0.0"   # all interfaces
p2p_port   = 9080        # libp2p, for other nodes: let it in
device     = "cuda"      # cuda, metal or cpu

[gpu]
oom_streak         = 3   # times out of memory that mean saturated
streak_window_secs = 30  # seconds within which they have to come
"""


def test_the_file_of_a_mesh_with_an_orchestrator() -> None:
    assert config_text(ANSWERS) == GOLDEN


def test_a_node_of_the_swarm_names_no_orchestrator_but_its_layers() -> None:
    read = tomllib.loads(config_text(SWARM))
    assert "orchestrator_url" not in read
    worker = read["worker"]
    assert (worker["kademlia_enabled"], worker["layer_range"]) == (True, "0:12")
    assert worker["bootstrap_peers"] == list(SWARM.bootstrap)
    assert worker["weights"] == "./small.gguf"
    assert "models_dir" not in worker


@pytest.mark.parametrize("answers", [ANSWERS, SWARM])
def test_every_key_has_a_comment_and_only_long_values_make_long_lines(answers: Answers) -> None:
    lines = config_text(answers).splitlines()
    for before, line in pairwise(lines):
        if " = " in line:
            assert ("  # " in line) != before.startswith("# "), line
            assert len(line) <= MAX_LINE or "  # " not in line


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", '"plain"'),
        ('a "quoted" path', '"a \\"quoted\\" path"'),
        ("C:\\models", '"C:\\\\models"'),
        ("tab\tdel\x7f", '"tab\\tdel\\u007f"'),
        ("größe 🦙", '"größe 🦙"'),
        (True, "true"),
        (1, "1"),
        ((), "[]"),
        (("a", "b"), '["a", "b"]'),
    ],
)
def test_a_value_as_toml(value: Value, written: str) -> None:
    assert toml_value(value) == written


@settings(max_examples=50)
@given(st.text(), st.text(), st.lists(st.text(), max_size=3))
def test_what_is_read_is_what_was_written(directory: str, model: str, peers: list[str]) -> None:
    answers = replace(SWARM, weights=directory or ".", model=model, bootstrap=tuple(peers))
    read = tomllib.loads(config_text(answers))
    assert read["worker"]["weights"] == (directory or ".")
    assert read["default_model"] == model
    assert read["worker"]["bootstrap_peers"] == peers
