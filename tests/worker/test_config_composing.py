"""From what is set to the configuration of a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tessella.core.addresses import parse_peer
from tessella.core.errors import BadAddress, BadConfig, BadWeights, UnknownModel
from tessella.core.identity import Identity
from tessella.core.layers import LayerRange
from tessella.core.schedule import Span
from tessella.core.shapes import DType
from tessella.worker.config import WorkerConfig
from tessella.worker.settings import find_weights, read_node_settings, worker_config
from tessella.worker.settings.composing import announced

PEERS = [Identity(bytes([number]) * 32).peer_id for number in (1, 2)]
FIRST, SECOND = (f"/ip4/10.0.0.{number}/tcp/1/p2p/{peer}" for number, peer in enumerate(PEERS, 1))
FIRST_TOO = FIRST.replace("10.0.0.1", "10.0.0.9")


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TESSELLA_HOME", str(tmp_path / "home"))
    path = tmp_path / "toy.gguf"
    path.touch()
    return path


def made(weights: Path | None, listen: tuple[str, ...] = (), **flags: Any) -> WorkerConfig:
    """The configuration of a node with these values, as TOML has them."""
    given = {"orchestrator_url": FIRST, "vram_mb": 64, "weights": weights and str(weights)}
    return worker_config(read_node_settings(None, {}, given | flags), listen=listen)


def test_a_node_of_few_settings_has_the_defaults(gguf: Path) -> None:
    config = made(gguf)
    assert config == WorkerConfig(
        musivum=(parse_peer(FIRST),),
        model=config.model,
        weights=gguf,
        claim_mb=64,
        http=("0.0.0.0:8080",),
        proofs=Path("~/.config/tessella/node.proofs.db").expanduser(),
    )
    assert config.model == "toy"


def test_every_setting_reaches_the_node(gguf: Path, tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.touch()
    config = made(
        gguf,
        kademlia_enabled=True,
        bootstrap_peers=[SECOND],
        lan_discovery=False,
        registration_grace_secs=1,
        default_model="org/name",
        models_dir="/m",
        hub="https://h.example",
        model_cache_prune="on",
        chat_template=str(template),
        callback_allowed_hosts=["a.example"],
        layer_range="0:2",
        device="cpu",
        dtype="f16",
        kv_cache_type="f16",
        context_size=2,
        parallel_slots=3,
        max_sessions=4,
        max_input_tokens=5,
        max_concurrent_hop_bodies=6,
        prefill_chunk=7,
        p2p_inference_timeout_secs=8,
        drain_secs=9,
        keypair_path=str(tmp_path / "k.key"),
        wal_checkpoint_interval_secs=10,
        auto_pause=True,
        auto_pause_percent=11,
        pause_schedule=["mon"],
        log_format="json",
        oom_streak=12,
        streak_window_secs=13,
    )
    assert config == WorkerConfig(
        musivum=(parse_peer(FIRST),),
        kademlia=True,
        bootstrap=(parse_peer(SECOND),),
        lan=False,
        snapshot=tmp_path / "home" / "peers.json",
        registration_grace_seconds=1.0,
        model=config.model,
        weights=gguf,
        models_dir=Path("/m"),
        hub="https://h.example",
        model_cache_prune="on",
        chat_template=template,
        claim_mb=64,
        callback_allowed_hosts=("a.example",),
        http=("0.0.0.0:8080",),
        layers=LayerRange(0, 2),
        device="cpu",
        dtype=DType.F16,
        context=2,
        slots=3,
        max_sessions=4,
        max_input_tokens=5,
        max_hop_bodies=6,
        prefill_chunk=7,
        hop_timeout=8.0,
        drain_seconds=9.0,
        proofs=tmp_path / "k.proofs.db",
        wal_checkpoint_seconds=10.0,
        auto_pause=True,
        auto_pause_percent=11,
        pause_schedule=(Span.parse("mon"),),
        log_format="json",
        oom_streak=12,
        oom_window_seconds=13.0,
    )
    assert config.model == "org/name"


def test_addresses_of_one_musivum_are_one_musivum(gguf: Path) -> None:
    config = made(gguf, orchestrator_url=[FIRST, SECOND, FIRST_TOO])
    assert [one.full() for one in config.musivum] == [(FIRST, FIRST_TOO), (SECOND,)]
    assert config.orchestrator_url == ""


def test_the_url_of_a_musivum_is_a_mesh_by_itself(gguf: Path) -> None:
    config = made(gguf, orchestrator_url="https://t.example/")
    assert (config.musivum, config.orchestrator_url) == ((), "https://t.example")


@pytest.mark.parametrize(
    ("flags", "listen", "http"),
    [
        ({}, "/ip4/0.0.0.0/tcp/9080", ("0.0.0.0:8080",)),
        ({"p2p_host": "localhost", "p2p_port": 0}, "/ip4/127.0.0.1/tcp/0", ("0.0.0.0:8080",)),
        ({"p2p_host": "::", "api_host": "::1"}, "/ip6/::/tcp/9080", ("[::1]:8080",)),
        ({"api_enabled": False}, "/ip4/0.0.0.0/tcp/9080", ()),
    ],
)
def test_where_a_node_listens(
    gguf: Path, flags: dict[str, Any], listen: str, http: tuple[str, ...]
) -> None:
    config = made(gguf, **flags)
    assert (config.listen, config.http) == ((listen,), http)


def test_multiaddrs_to_listen_on_go_before_host_and_port(gguf: Path) -> None:
    addrs = ("/ip4/10.0.0.1/tcp/1", "/ip6/::1/tcp/2")
    assert made(gguf, addrs, p2p_port=7).listen == addrs
    with pytest.raises(BadAddress, match=r"0\.0\.0\.0:80"):
        made(gguf, ("0.0.0.0:80",))


@pytest.mark.parametrize(
    ("flags", "announce", "url"),
    [
        ({}, (), ""),
        ({"public_ip": "8.8.8.8"}, ("/ip4/8.8.8.8/tcp/9080",), "http://8.8.8.8:8080"),
        (
            {"public_ip": "8.8.8.8", "public_p2p_port": 1, "public_api_port": 2},
            ("/ip4/8.8.8.8/tcp/1",),
            "http://8.8.8.8:2",
        ),
        ({"public_ip": "2001:db8::7"}, ("/ip6/2001:db8::7/tcp/9080",), "http://[2001:db8::7]:8080"),
        (
            {"public_ip": "8.8.8.8", "public_api_url": "https://p.example"},
            ("/ip4/8.8.8.8/tcp/9080",),
            "https://p.example",
        ),
        ({"public_api_url": "https://p.example"}, (), "https://p.example"),
        ({"public_api_url": "https://p.example", "api_enabled": False}, (), ""),
        ({"public_ip": "8.8.8.8", "api_port": 0}, ("/ip4/8.8.8.8/tcp/9080",), ""),
    ],
)
def test_what_a_nat_or_a_proxy_maps_is_told(
    gguf: Path, flags: dict[str, Any], announce: tuple[str, ...], url: str
) -> None:
    config = made(gguf, **flags)
    assert (config.announce, config.public_api_url) == (announce, url)


def test_the_port_that_a_nat_maps_is_that_of_the_first_listener() -> None:
    listening = ("/ip4/0.0.0.0/tcp/7", "/ip4/0.0.0.0/tcp/8")
    assert announced("8.8.8.8", None, listening) == ("/ip4/8.8.8.8/tcp/7",)
    assert announced(None, None, listening) == ()


@pytest.mark.parametrize(
    ("flag", "listen", "allowed"),
    [
        (None, (), False),
        (None, ("/ip4/127.0.0.1/tcp/0",), True),
        (None, ("/ip4/127.0.0.1/tcp/0", "/ip4/8.8.8.8/tcp/0"), False),
        (False, ("/ip4/127.0.0.1/tcp/0",), False),
        (True, (), True),
        (["10.0.0.0/8"], (), ("10.0.0.0/8",)),
    ],
)
def test_private_addresses_are_told_where_somebody_says_so(
    gguf: Path, flag: object, listen: tuple[str, ...], allowed: object
) -> None:
    found = made(gguf, listen, allow_private_addrs=flag).allow_private
    assert (found if isinstance(found, bool) else tuple(map(str, found))) == allowed


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({"vram_mb": None}, r"a node needs vram_mb \(--claim-mb, TESSELLA_VRAM_MB\)"),
        ({"orchestrator_url": None}, "a node needs orchestrator_url"),
        ({"public_p2p_port": 1}, "public_p2p_port needs public_ip"),
        ({"public_api_port": 1}, "public_api_port needs public_ip"),
        ({"bootstrap_peers": [SECOND]}, "bootstrap_peers are peers of the swarm"),
        ({"kv_cache_type": "f16"}, "kv_cache_type = f16: .* dtype has to be f16 too"),
        ({"kv_cache_type": "f16", "dtype": "f32"}, "kv_cache_type = f16"),
        ({"chat_template": "/nowhere.jinja"}, "chat_template: there is no file /nowhere.jinja"),
    ],
)
def test_what_does_not_go_together_is_named(gguf: Path, flags: dict[str, Any], line: str) -> None:
    with pytest.raises(BadConfig, match=line):
        made(gguf, **flags)


def weights_of(**flags: Any) -> tuple[str, Path]:
    found = find_weights(read_node_settings(None, {}, flags))
    return found.name, found.path


def test_a_model_lies_where_its_name_or_a_path_says(gguf: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    (models / "org" / "name").mkdir(parents=True)
    (models / "one.gguf").touch()
    for name, place in (("one", models / "one.gguf"), ("org/name", models / "org" / "name")):
        assert weights_of(default_model=name, models_dir=str(models)) == (name, place)
    assert weights_of(weights=str(gguf)) == ("toy", gguf)
    assert weights_of(weights=str(gguf), default_model="mine") == ("mine", gguf)
    assert weights_of(default_model=str(gguf)) == ("toy", gguf)


def test_a_model_that_is_not_here_is_named(gguf: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match="'two' is not on this machine"):
        weights_of(default_model="two", models_dir=str(tmp_path))
    with pytest.raises(BadWeights, match=r"/no\.gguf does not exist"):
        weights_of(weights="/no.gguf")
