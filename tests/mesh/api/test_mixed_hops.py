"""A stage that libp2p does not reach, between two that it does."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.mesh.api.nodes import Document, Nodes, open_nodes

pytestmark = [pytest.mark.mesh, pytest.mark.slow]

ASK: Document = {
    "messages": [{"role": "user", "content": "Why is the sky blue?"}],
    "max_tokens": 24,
    "temperature": 0,
}


def text(client: httpx.Client, entry: str) -> str:
    """The answer of three stages."""
    answer = client.post(f"{entry}/v1/chat/completions", json=ASK)
    assert answer.headers["Tessella-Chain"].count(":") == 3
    said: str = answer.json()["choices"][0]["message"]["content"]
    return said


def test_a_chain_over_http_and_libp2p_says_what_one_over_libp2p_says(
    nodes: Nodes, smollm2_gguf: Path, tmp_path: Path
) -> None:
    expected = text(nodes.client, nodes.entry)
    with open_nodes(tmp_path, smollm2_gguf, over_http=1) as mixed:
        rows = mixed.peers()
        assert [bool(row["p2p_addrs"]) for row in rows] == [True, False, True]
        assert text(mixed.client, mixed.entry) == expected
        _, middle, _ = mixed.statuses()
        assert middle["positions_computed"] > 0
