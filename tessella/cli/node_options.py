"""The flags of `tessella-worker`, and what they say of its settings.

A parameter that has the name of a key says that key; the others are read here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from tessella.core.errors import BadConfig
from tessella.web.listening import parse_http_listen
from tessella.worker.settings import KEYS

MB_PER_GB = 1024
ALL_INTERFACES = "0.0.0.0"

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The settings. [default: ./worker_config.toml, or that in ~/.config/tessella]",
    ),
]
OrchestratorOption = Annotated[
    list[str] | None,
    typer.Option(
        *KEYS.by_name["orchestrator_url"].flags,
        metavar="URL|MULTIADDR",
        help="The mesh's musivum, by URL or as /ip4/HOST/tcp/PORT/p2p/ID. Multiaddrs of others, "
        "which stand by, may follow. Also ORCHESTRATOR_URL and TESSELLA_MUSIVUM.",
    ),
]
KademliaOption = Annotated[
    bool | None, typer.Option("--kademlia", help="Be found through the swarm; needs no musivum.")
]
BootstrapPeersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--bootstrap",
        metavar="MULTIADDR",
        help="A peer of the swarm, to find the others through; may be repeated.",
    ),
]
LanOption = Annotated[
    bool | None,
    typer.Option("--lan/--no-lan", help="With --kademlia: look on the local network too."),
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", "--model-id", metavar="NAME", help="The name it is served under."),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="GGUF file or HuggingFace directory. [default: --model]"),
]
ClaimOption = Annotated[
    int | None, typer.Option("--claim-mb", help="Memory for layers and KV, in MB.")
]
VramOption = Annotated[
    float | None, typer.Option("--vram-gb", help="The same in GB; 1 GB is 1024 MB.")
]
ListenOption = Annotated[
    list[str] | None,
    typer.Option(metavar="MULTIADDR", help="May be repeated. [default: all, port 9080]"),
]
ApiListenOption = Annotated[
    str | None,
    typer.Option("--api", metavar="HOST:PORT", help="Answer HTTP here. [default: :8080]"),
]
NoApiOption = Annotated[bool, typer.Option("--no-api", help="Answer no HTTP.")]
PublicIpOption = Annotated[
    str | None, typer.Option("--public-ip", help="The address others reach this node at.")
]
PublicP2pPortOption = Annotated[
    int | None,
    typer.Option("--public-p2p-port", help="Its port there. [default: as listened on]"),
]
PublicApiPortOption = Annotated[
    int | None,
    typer.Option("--public-api-port", help="The port of HTTP there. [default: as listened on]"),
]
PublicApiUrlOption = Annotated[
    str | None,
    typer.Option("--public-api-url", metavar="URL", help="Where a proxy leads to its HTTP API."),
]
PrivateOption = Annotated[
    bool | None,
    typer.Option(
        "--allow-private-addrs",
        help="Tell others this machine's private addresses: a mesh on a LAN.",
    ),
]
LayersOption = Annotated[
    str | None, typer.Option("--layers", metavar="START:STOP", help="Insist on a range.")
]
DeviceOption = Annotated[str | None, typer.Option(help="cuda, metal or cpu. [default: best]")]
DtypeOption = Annotated[str | None, typer.Option(help="f32, f16 or bf16.")]
QuantizationOption = Annotated[str | None, typer.Option(help="none: what the engine has.")]
ContextOption = Annotated[int | None, typer.Option("--context", help="Positions of a session.")]
SlotsOption = Annotated[
    int | None, typer.Option("--slots", help="Sessions the claim is sized for.")
]
HopTimeoutOption = Annotated[
    float | None,
    typer.Option("--hop-timeout", help="Seconds without progress that count as silence."),
]
KeypairOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="PATH",
        help="The identity file, made if there is none. [default: ~/.config/tessella/node.key]",
    ),
]
ChatTemplateOption = Annotated[
    str | None,
    typer.Option("--chat-template", metavar="FILE", help="A Jinja file in place of the model's."),
]
CleanCacheOption = Annotated[
    bool, typer.Option("--clean-cache", help="Delete the shards that are here; fetch them anew.")
]
PruneOption = Annotated[
    str | None,
    typer.Option(
        "--model-cache-prune",
        metavar="off|dry-run|on",
        help="Delete the shards that a new assignment does not need.",
    ),
]
AutoPauseOption = Annotated[
    bool | None, typer.Option("--auto-pause", help="Pause while other programs use the device.")
]
LogFormatOption = Annotated[
    str | None, typer.Option("--log-format", metavar="text|json|rich", help="The log on stderr.")
]


@dataclass(frozen=True, slots=True)
class Given:
    """What a command line says."""

    config: Path | None = None
    """The file that it names."""
    flags: Mapping[str, object] = field(default_factory=dict)
    """Values by key as TOML would have them; None was not given."""


def given_by(params: Mapping[str, Any]) -> Given:
    """What the parameters of `tessella-worker` say. Raises BadConfig, BadAddress."""
    # A list that was not given is an empty one.
    said = {
        name: None if value is None or value in ([], ()) else _plain(value)
        for name, value in params.items()
        if name in KEYS.by_name
    }
    claim = _claim(params["claim_mb"], params["vram_gb"])
    flags = said | _api(params["api"], params["no_api"]) | {"vram_mb": claim}
    return Given(params["config"] and Path(params["config"]), flags)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, list | tuple) else value


def _claim(claim_mb: int | None, vram_gb: float | None) -> int | None:
    if vram_gb is None:
        return claim_mb
    if not 0 < vram_gb < math.inf:
        raise BadConfig(f"--vram-gb has to be above 0, not {vram_gb}")
    found = max(1, math.floor(vram_gb * MB_PER_GB))
    if claim_mb not in (None, found):
        raise BadConfig(f"--claim-mb {claim_mb} and --vram-gb {vram_gb:g} are not the same claim")
    return found


def _api(listen: str | None, is_off: bool) -> dict[str, object]:
    if listen is None:
        return {"api_enabled": False} if is_off else {}
    if is_off:
        raise BadConfig("--api says where, and --no-api that nowhere: choose one")
    host, port = parse_http_listen(listen)
    return {"api_enabled": True, "api_host": host or ALL_INTERFACES, "api_port": port}
