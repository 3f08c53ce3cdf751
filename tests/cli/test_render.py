from __future__ import annotations

import io
import json

from tessella.cli.render import (
    LoadingBars,
    peer_document,
    peers_table,
)
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.peers import PeerRow
from tessella.tables import console

ROW = PeerRow(
    peer_id=PeerId("12D3KooWabc"),
    model=ModelId("toy"),
    contract="c0ffee",
    layers=LayerRange(2, 4),
    total_layers=6,
    status="Healthy",
    addrs=("/ip4/10.0.0.1/tcp/4001",),
    device="cpu",
    dtype="f32",
    queue_depth=3,
    step_ms=1.25,
)


def test_a_table_that_is_piped_keeps_a_row_on_a_line() -> None:
    out = io.StringIO()
    console(out).print(peers_table([ROW]))
    (line,) = [line for line in out.getvalue().splitlines() if ROW.peer_id in line]
    for cell in ("toy", "2:4 of 6", "Healthy", "cpu", "f32", "3", "1.2", ROW.addrs[0]):
        assert cell in line


def test_markup_in_a_cell_is_text() -> None:
    out = io.StringIO()
    row = PeerRow(**{**peer_fields(), "model": ModelId("[red]x[/red]")})  # type: ignore[arg-type]
    console(out).print(peers_table([row]))
    assert "[red]x[/red]" in out.getvalue()


def peer_fields() -> dict[str, object]:
    return {name: getattr(ROW, name) for name in PeerRow.__dataclass_fields__}


def test_a_node_as_json_has_every_field_of_its_row() -> None:
    document = json.loads(json.dumps(peer_document(ROW)))
    assert document.pop("layer_range") == [2, 4]
    assert set(document) == set(peer_fields()) - {"layers"}


def test_loading_is_told_in_lines_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    with LoadingBars(out) as bars:
        bars.note("worker-1", {"event": "assigned", "layer_range": [0, 2]})
        bars.note("worker-1", {"event": "loading", "loaded_bytes": 5, "total_bytes": 10})
        bars.note("worker-1", {"event": "ready"})
        bars.note("worker-1", {"event": "something else"})
    assert out.getvalue().splitlines() == [
        "worker-1  layers 0:2  loading",
        "worker-1  layers 0:2  ready",
    ]
