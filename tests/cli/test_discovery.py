from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from p2p.testing import MemoryNetwork
from tessella.cli import discovery
from tessella.cli.discovery import Way, api_base, choose_model, list_rows, way_of
from tessella.core.addresses import parse_peer
from tessella.core.errors import (
    BadAddress,
    BadConfig,
    ModelUnavailable,
    PeerUnreachable,
    UnknownModel,
)
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


def test_nothing_typed_is_no_way() -> None:
    assert way_of("", None, (), "").is_empty
    assert not way_of(ADDR, None, (), "").is_empty


@pytest.mark.parametrize(
    ("typed", "base"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        (" https://node.example/ ", "https://node.example"),
        ("http://[::1]:8080/v1", "http://[::1]:8080"),
        ("http://host/below/v1/", "http://host/below"),
    ],
)
def test_an_api_may_be_anywhere_and_its_url_may_end_in_v1(typed: str, base: str) -> None:
    assert api_base(typed) == base


@pytest.mark.parametrize(
    "typed",
    ["127.0.0.1:8080", "ftp://x", "http://", "http://x:y", "http://x\x1b", "http://x?a=b", "x"],
)
def test_what_is_no_url_of_an_api_is_named(typed: str) -> None:
    with pytest.raises(BadAddress, match="http://HOST:8080"):
        api_base(typed)


async def test_where_the_swarm_is_silent_the_musivum_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def silent(*_: object) -> list[PeerRow]:
        raise PeerUnreachable("nobody of the swarm answers")

    async def listed(*_: object) -> list[PeerRow]:
        return [OTHER, ROW]

    monkeypatch.setattr(discovery, "ask_swarm", silent)
    monkeypatch.setattr(discovery, "ask_peers", listed)
    async with MemoryNetwork().host(bytes(32)) as host:
        both = Way(bootstrap=(parse_peer(ADDR),), musivum=parse_peer(ADDR))
        assert await list_rows(host, both) == [OTHER, ROW]
        with pytest.raises(PeerUnreachable):
            await list_rows(host, replace(both, musivum=None))
        with pytest.raises(BadConfig, match="--musivum"):
            await list_rows(host, Way())


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
