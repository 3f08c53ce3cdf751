"""What an operator and a client type, with curl and jq, against a mesh that is here."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from tests.mesh.api.nodes import ANSWER_SECONDS, MODEL, Nodes

MISSING = [name for name in ("curl", "jq") if shutil.which(name) is None]
pytestmark = [
    pytest.mark.mesh,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]

STATUS = "curl -s localhost:8080/status | jq"
SHARD = "curl -s localhost:8080/status | jq '{model, layer_ranges, gpu}'"
NODES = (
    'curl -s "https://tracker1.musivum.dev/peers?model_id=Qwen/Qwen2.5-0.5B-Instruct" | jq length'
)
ENTRY = """
curl -s "https://tracker1.musivum.dev/peers?model_id=Qwen/Qwen2.5-0.5B-Instruct" \\
  | jq -r '.[] | select(.canary == false and .status == "Healthy") | .http_api_url' | head -1
"""
HELLO = """
curl -s localhost:8080/v1/chat/completions -H 'content-type: application/json' -d '{
  "model": "Qwen/Qwen2.5-0.5B-Instruct",
  "messages": [{ "role": "user", "content": "Hello!" }],
  "max_tokens": 64, "temperature": 0.0
}'
"""
GAP = """
curl -s localhost:8080/v1/fim/completions -H 'content-type: application/json' -d '{
  "prefix": "fn main() {", "suffix": "}", "max_tokens": 128
}'
"""
MOSAIC = """
curl -s http://203.0.113.7:8080/v1/chat/completions \\
  -H 'content-type: application/json' -d '{
    "model": "Qwen/Qwen2.5-0.5B-Instruct",
    "messages": [{ "role": "user", "content": "Explain a mosaic." }],
    "max_tokens": 128, "stream": true
  }'
"""


def typed(nodes: Nodes, line: str) -> str:
    """What a line prints, with no more of it replaced than where, and which model."""
    for example, here in (
        ("https://tracker1.musivum.dev", nodes.musivum),
        ("http://203.0.113.7:8080", nodes.entry),
        ("localhost:8080", nodes.entry.removeprefix("http://")),
        ("Qwen/Qwen2.5-0.5B-Instruct", MODEL),
    ):
        line = line.replace(example, here)
    ended = subprocess.run(
        ["bash", "-c", line], capture_output=True, timeout=ANSWER_SECONDS, check=True
    )
    assert ended.stderr == b""
    return ended.stdout.decode()


def test_a_node_shows_its_status(nodes: Nodes) -> None:
    status: dict[str, Any] = json.loads(typed(nodes, STATUS))
    assert status["status"] == "Healthy"
    assert status["assignment"]["layer_ranges"] == [[0, 10]]
    deal = ("max_input_tokens", "max_input_tokens_source", "hop_timeout_secs")
    assert [status[name] for name in deal] == [320, "declared", 10]
    assert status["hop_bodies_in_flight"] <= status["max_concurrent_hop_bodies"]
    shard = json.loads(typed(nodes, SHARD))
    assert shard["model"] == MODEL
    assert shard["layer_ranges"] == [[0, 10]]
    assert shard["gpu"]["device"] == "cpu"


def test_the_mesh_lists_its_nodes_and_an_entry_that_answers(nodes: Nodes) -> None:
    assert typed(nodes, NODES) == "3\n"
    url = typed(nodes, ENTRY).strip()
    assert url in nodes.urls
    assert nodes.client.get(f"{url}/health").json()["status"] == "ok"


def test_a_question_is_answered(nodes: Nodes) -> None:
    answer = json.loads(typed(nodes, HELLO))
    (choice,) = answer["choices"]
    assert (choice["message"]["role"], choice["finish_reason"]) == ("assistant", "stop")
    assert choice["message"]["content"]


def test_a_gap_is_refused_by_a_model_that_fills_none(nodes: Nodes) -> None:
    error = json.loads(typed(nodes, GAP))["error"]
    assert error["type"] == "invalid_request_error"
    assert "fill" in error["message"]


def test_an_answer_comes_as_a_stream(nodes: Nodes) -> None:
    lines = typed(nodes, MOSAIC).splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    deltas = [json.loads(event)["choices"][0]["delta"] for event in data[:-1]]
    assert len([delta for delta in deltas if delta.get("content")]) > 20
