from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from tessella.cli.discovery import Way, choose_model, way_of
from tessella.core.addresses import parse_peer
from tessella.core.errors import BadAddress, BadConfig, ModelUnavailable, UnknownModel
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.peers import PeerRow

ADDR = f"/ip4/127.0.0.1/tcp/4001/p2p/{Identity(bytes(32)).peer_id}"
ROW = PeerRow(
    peer_id=PeerId("a"),
    model=ModelId("toy"),
    contract="",
    layers=LayerRange(0, 2),
    total_layers=2,
    status="Healthy",
    addrs=(),
    device="cpu",
    dtype="f32",
    queue_depth=0,
    step_ms=0.0,
)
# Nothing listens on the first port.
NOBODY = "/ip4/127.0.0.1/tcp/1/p2p/12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5"
OTHER = replace(ROW, model=ModelId("other"))


def test_a_named_peer_goes_before_the_musivum_of_the_environment() -> None:
    way = way_of(ADDR, ADDR, (), "")
    assert (way.peer, way.bootstrap) == (parse_peer(ADDR), ())
    assert way_of(ADDR, None, (), "toy") == Way(musivum=parse_peer(ADDR), model="toy")


def test_without_any_way_the_flags_are_named() -> None:
    with pytest.raises(BadConfig, match=r"--musivum.*TESSELLA_MUSIVUM.*--peer"):
        way_of("", None, (), "")


def test_a_malformed_address_is_named() -> None:
    with pytest.raises(BadAddress, match="nonsense"):
        way_of("nonsense", None, (), "")


def test_the_only_model_of_a_mesh_needs_no_name() -> None:
    assert choose_model([ROW, ROW], "") == "toy"
    assert choose_model([ROW, OTHER], "other") == "other"


def test_a_choice_that_cannot_be_made_names_what_there_is() -> None:
    with pytest.raises(BadConfig, match="other, toy"):
        choose_model([ROW, OTHER], "")
    with pytest.raises(UnknownModel, match="'third'; the mesh has other, toy"):
        choose_model([ROW, OTHER], "third")
    with pytest.raises(ModelUnavailable):
        choose_model([], "third")


@pytest.mark.mesh
def test_a_swarm_where_nobody_answers_is_one_line_on_stderr() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tessella.cli.main", "peers", "--bootstrap", NOBODY],
        capture_output=True,
        text=True,
        timeout=60,
    )
    (line,) = done.stderr.splitlines()
    assert line.startswith("tessella: peer_unreachable: nobody of the swarm answers")
    assert done.returncode == 75
    assert done.stdout == ""
