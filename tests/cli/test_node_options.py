"""What a command line of `tessella-worker` says of its settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tessella.cli import worker
from tessella.core.addresses import parse_peer
from tessella.core.identity import Identity
from tessella.worker.config import WorkerConfig
from tessella.worker.settings import KEYS

Command = Callable[..., Any]
Configured = Callable[..., WorkerConfig]
MUSIVUM = f"/ip4/10.0.0.1/tcp/1/p2p/{Identity(b'1' * 32).peer_id}"
BASE = ("--musivum", MUSIVUM, "--claim-mb", "64")


@pytest.fixture
def configured(command: Command, toy: Path, monkeypatch: pytest.MonkeyPatch) -> Configured:
    """A function that gives the configuration of the node that a command line would run."""

    def run(*args: str) -> WorkerConfig:
        found: list[WorkerConfig] = []
        monkeypatch.setattr(worker, "run_command", lambda main: found.append(main.args[0]))
        ended = command("tessella-worker", "--weights", str(toy), *args)
        assert ended.status == 0, ended.err
        return found[0]

    return run


@pytest.mark.parametrize("flag", ["--tracker-url", "--musivum-url", "--orchestrator-url"])
def test_a_mesh_may_be_named_by_its_url(configured: Configured, flag: str) -> None:
    config = configured(flag, "https://tracker1.example", "--claim-mb", "64")
    assert (config.orchestrator_url, config.musivum) == ("https://tracker1.example", ())


@pytest.mark.parametrize(
    ("args", "claim"),
    [
        (("--vram-gb", "2.0"), 2048),
        (("--vram-gb", "0.3"), 307),
        (("--vram-gb", "0.0001"), 1),
        (("--vram-gb", "2", "--claim-mb", "2048"), 2048),
    ],
)
def test_a_claim_may_be_told_in_gb(
    configured: Configured, args: tuple[str, ...], claim: int
) -> None:
    assert configured("--musivum", MUSIVUM, *args).claim_mb == claim


@pytest.mark.parametrize(
    ("args", "http"),
    [
        ((), ("0.0.0.0:8080",)),
        (("--api", "127.0.0.1:0"), ("127.0.0.1:0",)),
        (("--api", ":81"), ("0.0.0.0:81",)),
        (("--api", "[::1]:81"), ("[::1]:81",)),
        (("--no-api",), ()),
    ],
)
def test_where_http_is_answered_may_be_told(
    configured: Configured, args: tuple[str, ...], http: tuple[str, ...]
) -> None:
    assert configured(*BASE, *args).http == http


def test_the_other_flags_reach_the_node(configured: Configured, tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.touch()
    told = ("--public-ip", "8.8.8.8", "--public-p2p-port", "1", "--public-api-port", "2")
    kept = ("--model-cache-prune", "dry-run", "--clean-cache", "--chat-template", str(template))
    serves = ("--layers", "0:3", "--context", "9", "--slots", "2", "--hop-timeout", "3")
    more = ("--auto-pause", "--log-format", "json", "--quantization", "none", "--dtype", "f16")
    config = configured(
        *BASE, *told, *kept, *serves, *more, "--allow-private-addrs", "--model-id=m"
    )
    assert config.announce == ("/ip4/8.8.8.8/tcp/1",)
    assert config.public_api_url == "http://8.8.8.8:2"
    assert (config.model_cache_prune, config.clean_cache) == ("dry-run", True)
    assert (config.chat_template, str(config.layers)) == (template, "0:3")
    assert (config.context, config.slots, config.hop_timeout) == (9, 2, 3.0)
    assert (config.auto_pause, config.log_format, config.allow_private) == (True, "json", True)
    assert (config.model, config.musivum) == ("m", (parse_peer(MUSIVUM),))
    assert configured(*BASE, "--public-api-url", "https://p.example").public_api_url != ""


@pytest.mark.parametrize(
    ("args", "status", "line"),
    [
        (("--vram-gb", "1", "--claim-mb", "7"), 78, "--claim-mb 7 and --vram-gb 1 are not the"),
        (("--vram-gb", "nan"), 78, "--vram-gb has to be above 0"),
        (("--api", ":1", "--no-api"), 78, "--api says where"),
        (("--api", "nowhere"), 1, "bad_address: not HOST:PORT: 'nowhere'"),
        (("--quantization", "Q8_0"), 78, "quantization in --quantization: the engine keeps no"),
        (("--model-cache-prune", "yes"), 78, "in --model-cache-prune: has to be one of off"),
        (("--tracker-url", "ftp://x"), 1, "bad_address: orchestrator_url in --tracker-url or"),
    ],
)
def test_a_wrong_flag_is_one_line(
    command: Command, args: tuple[str, ...], status: int, line: str
) -> None:
    ended = command("tessella-worker", *args)
    assert (ended.status, ended.out) == (status, "")
    assert line in ended.err
    assert len(ended.err.splitlines()) == 1


def test_every_flag_of_a_key_is_one_of_the_command() -> None:
    known = set()
    for one in typer.main.get_command(worker.app).params:
        known |= {*one.opts, *one.secondary_opts}
    flags = {
        flag for key in KEYS.by_name.values() for told in key.flags for flag in told.split("/")
    }
    assert flags <= known
