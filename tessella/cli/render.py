"""How values look to a reader. What comes from a peer is data: it never steers the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TextIO

from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from tessella.core.messages import Stage
from tessella.core.peers import PeerRow
from tessella.core.text import one_line
from tessella.tables import console, table

Document = dict[str, Any]


def peers_table(rows: Iterable[PeerRow]) -> Table:
    """The nodes of a mesh."""
    headings = ("peer id", "model", "layers", "status", "device", "dtype", "queue", "step ms")
    cells = [
        (
            row.peer_id,
            row.model,
            f"{row.layers} of {row.total_layers}",
            row.status,
            row.device,
            row.dtype,
            row.queue_depth,
            f"{row.step_ms:.1f}" if row.step_ms else "-",
            " ".join(row.addrs),
        )
        for row in rows
    ]
    return table(f"nodes: {len(cells)}", (*headings, "addrs"), cells)


def peer_document(row: PeerRow) -> Document:
    """A node as JSON."""
    return {
        "peer_id": row.peer_id,
        "model": row.model,
        "layer_range": [row.layers.start, row.layers.stop],
        "total_layers": row.total_layers,
        "status": row.status,
        "device": row.device,
        "dtype": row.dtype,
        "queue_depth": row.queue_depth,
        "step_ms": row.step_ms,
        "contract": row.contract,
        "addrs": list(row.addrs),
        "api_url": row.api_url,
        "canary": row.canary,
    }


def chain_lines(chain: Iterable[Stage]) -> list[str]:
    """A chain, a line a stage."""
    return [f"  layers {stage.layers!s:<8} {one_line(stage.peer_id)}" for stage in chain]


class LoadingBars:
    """How far each node is with its shard: bars on a terminal, a line a step elsewhere."""

    def __init__(self, file: TextIO = sys.stderr) -> None:
        self._console = console(file)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            console=self._console,
            disable=not file.isatty(),
        )
        self._tasks: dict[str, TaskID] = {}
        self._ranges: dict[str, str] = {}

    def __enter__(self) -> LoadingBars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave the terminal to others; stopping twice is no error."""
        self._bars.stop()

    def note(self, name: str, event: Document) -> None:
        """Show an event of a node: `assigned`, `loading` or `ready`."""
        match event:
            case {"event": "assigned", "layer_range": [start, stop]}:
                self._ranges[name] = f"{name}  layers {start}:{stop}"
                self._tasks[name] = self._bars.add_task(self._ranges[name], total=None)
                self._line(f"{self._ranges[name]}  loading")
            case {"event": "loading", "loaded_bytes": done, "total_bytes": total}:
                if name in self._tasks:
                    self._bars.update(self._tasks[name], completed=done, total=total)
            case {"event": "ready"}:
                self._line(f"{self._ranges.get(name, name)}  ready")

    def _line(self, text: str) -> None:
        if self._bars.disable:
            self._console.print(Text(text))
