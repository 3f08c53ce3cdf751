"""One mesh, for all tests of it: each of its programs takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openai import OpenAI

from tests.mesh.api.nodes import ANSWER_SECONDS, Nodes, open_nodes, openai_access


@pytest.fixture(scope="session")
def nodes(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Three stages of the real model, with an HTTP API each."""
    with open_nodes(tmp_path_factory.mktemp("nodes"), smollm2_gguf) as running:
        yield running


@pytest.fixture(scope="session")
def http(nodes: Nodes) -> Iterator[httpx.Client]:
    """A client of the entry, by paths."""
    with httpx.Client(base_url=nodes.entry, timeout=ANSWER_SECONDS) as client:
        yield client


@pytest.fixture
def client(nodes: Nodes) -> Iterator[OpenAI]:
    """OpenAI's client of the entry."""
    with OpenAI(**openai_access(nodes)) as client:
        yield client
