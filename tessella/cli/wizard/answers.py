"""What was answered, and the configuration file that says it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tessella.cli.wizard.machine import ALL_INTERFACES

HEADER = "Written by the wizard of tessella-worker; docs/config.md has every key."
# As it is shown before it is written, on a terminal of 80 columns.
MAX_LINE = 78

Value = str | int | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """All that the wizard asks."""

    orchestrator: str = ""
    """A URL or a multiaddr; empty for a node of the swarm alone."""
    bootstrap: tuple[str, ...] = ()
    """Multiaddrs of peers of the swarm."""
    layers: str = ""
    """START:STOP, where nobody assigns them."""
    model: str
    device: str
    claim_mb: int
    models_dir: str = ""
    weights: str = ""
    """One file or directory of this model, in place of a directory of models."""
    key: Path
    api_port: int
    p2p_port: int


@dataclass(frozen=True, slots=True)
class Line:
    """A key of the file."""

    key: str
    value: Value
    comment: str


def config_text(answers: Answers) -> str:
    """The file, in TOML."""
    parts = [f"# {HEADER}", "", *_lines(_top(answers))]
    parts += ["", "[worker]", *_lines(_worker(answers))]
    parts += ["", "[gpu]", *_lines(_GPU)]
    return "\n".join(parts) + "\n"


def _top(answers: Answers) -> Iterator[Line]:
    if answers.orchestrator:
        yield Line("orchestrator_url", answers.orchestrator, "whom the node registers with")
    yield Line("keypair_path", str(answers.key), "the identity, and its balance: keep a copy")
    yield Line("default_model", answers.model, "the model it serves")


def _worker(answers: Answers) -> Iterator[Line]:
    yield Line("vram_mb", answers.claim_mb, "the claim: MB for layers and KV")
    if answers.layers:
        yield Line("layer_range", answers.layers, "held for good: nobody assigns others")
    if answers.weights:
        yield Line("weights", answers.weights, "the model's file or directory")
    else:
        yield Line("models_dir", answers.models_dir, "where models lie, by name")
    yield Line("api_host", ALL_INTERFACES, "all interfaces")
    yield Line("api_port", answers.api_port, "HTTP, for clients")
    yield Line("p2p_host", ALL_INTERFACES, "all interfaces")
    yield Line("p2p_port", answers.p2p_port, "libp2p, for other nodes: let it in")
    if not answers.orchestrator:
        yield Line("kademlia_enabled", True, "found through the swarm alone")
        yield Line("bootstrap_peers", answers.bootstrap, "its peers; none: the local network")
    yield Line("device", answers.device, "cuda, metal or cpu")


_GPU = (
    Line("oom_streak", 3, "times out of memory that mean saturated"),
    Line("streak_window_secs", 30, "seconds within which they have to come"),
)


def _lines(lines: Iterable[Line]) -> list[str]:
    """Keys in a column, and comments in another; above the keys where that would be too wide."""
    table = list(lines)
    width = max(len(line.key) for line in table)
    said = [f"{line.key:<{width}} = {toml_value(line.value)}" for line in table]
    column = max(map(len, said))
    beside = [f"{text:<{column}}  # {line.comment}" for text, line in zip(said, table, strict=True)]
    if max(map(len, beside)) <= MAX_LINE:
        return beside
    return [
        part for text, line in zip(said, table, strict=True) for part in (f"# {line.comment}", text)
    ]


def toml_value(value: Value) -> str:
    """A value as TOML writes it. A text has to be UTF-8."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        # A basic string of TOML is one of JSON, except that it may not hold DEL as it is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"[{', '.join(map(toml_value, value))}]"
