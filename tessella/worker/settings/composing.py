"""From what is set to the configuration of a node."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tessella.catalogue import LocalModel, home, require_model
from tessella.core.addresses import Cidr, check_addr, is_private, merge
from tessella.core.errors import BadConfig
from tessella.core.ids import ModelId
from tessella.core.shapes import DType
from tessella.settings.kinds import AUTO
from tessella.web.hosts import bracketed
from tessella.worker.config import WorkerConfig
from tessella.worker.proofs.schema import book_path
from tessella.worker.settings.reading import NodeSettings, missing
from tessella.worker.settings.tables import WorkerTable

# Peers of the swarm, for a start without any bootstrap that still answers.
SWARM_PEERS = "peers.json"


def find_weights(settings: NodeSettings) -> LocalModel:
    """The name to serve under, and the files: each may be told by the other.

    Raises UnknownModel for a name that is not on this machine, BadWeights for a path that is no
    model, BadConfig where neither is set.
    """
    name, weights = settings.mesh.default_model, settings.worker.weights
    if weights is None:
        return _in_models_dir(name, settings.worker.models_dir) or require_model(name or "")
    found = require_model(weights)
    return LocalModel(ModelId(name), found.path) if name else found


def _in_models_dir(name: str | None, directory: Path | None) -> LocalModel | None:
    if not name or directory is None or name.startswith((".", "/", "~")):
        return None
    candidates = (directory / f"{name}.gguf", directory / name)
    return next((LocalModel(ModelId(name), path) for path in candidates if path.exists()), None)


def worker_config(
    settings: NodeSettings, *, listen: Sequence[str] = (), clean_cache: bool = False
) -> WorkerConfig:
    """The configuration of one node.

    `listen` is multiaddrs that go before `p2p_host` and `p2p_port`. Raises BadConfig that names
    all that is missing, or keys that do not go together; BadAddress for a multiaddr; and what
    `find_weights` raises.
    """
    mesh, worker, gpu = settings.mesh, settings.worker, settings.gpu
    if worker.vram_mb is None or missing(settings):
        raise BadConfig(f"a node needs {'; '.join(missing(settings))}")
    _check_together(worker)
    listening = tuple(map(check_addr, listen)) or (_multiaddr(worker.p2p_host, worker.p2p_port),)
    orchestrator = mesh.orchestrator_url or ()
    model = find_weights(settings)
    # One line a field: what is set, under the name by which the node knows it.
    return WorkerConfig(
        musivum=() if isinstance(orchestrator, str) else merge(orchestrator),
        orchestrator_url=orchestrator if isinstance(orchestrator, str) else "",
        registration_grace_seconds=worker.registration_grace_secs,
        kademlia=worker.kademlia_enabled,
        bootstrap=worker.bootstrap_peers,
        lan=worker.lan_discovery,
        snapshot=home() / SWARM_PEERS if worker.kademlia_enabled else None,
        model=model.name,
        weights=model.path,
        chat_template=worker.chat_template,
        models_dir=worker.models_dir,
        hub=worker.hub or "",
        model_cache_prune=worker.model_cache_prune,
        clean_cache=clean_cache,
        claim_mb=worker.vram_mb,
        listen=listening,
        announce=announced(worker.public_ip, worker.public_p2p_port, listening),
        allow_private=_allowed(worker, listening),
        callback_allowed_hosts=worker.callback_allowed_hosts,
        http=(f"{bracketed(worker.api_host)}:{worker.api_port}",) if worker.api_enabled else (),
        public_api_url=_public_url(worker),
        layers=worker.layer_range,
        device=worker.device,
        dtype=DType(worker.dtype) if worker.dtype else None,
        context=worker.context_size,
        slots=worker.parallel_slots,
        max_sessions=worker.max_sessions,
        max_hop_bodies=worker.max_concurrent_hop_bodies,
        max_input_tokens=worker.max_input_tokens,
        prefill_chunk=worker.prefill_chunk,
        hop_timeout=worker.p2p_inference_timeout_secs,
        drain_seconds=worker.drain_secs,
        oom_streak=gpu.oom_streak,
        oom_window_seconds=gpu.streak_window_secs,
        auto_pause=worker.auto_pause,
        auto_pause_percent=worker.auto_pause_percent,
        pause_schedule=worker.pause_schedule,
        audits=worker.audits,
        audit_ring_mb=worker.audit_ring_mb,
        canary_mode=worker.canary_mode,
        proofs=book_path(mesh.keypair_path.expanduser()),
        wal_checkpoint_seconds=worker.wal_checkpoint_interval_secs,
        log_format=worker.log_format,
    )


def announced(
    public_ip: str | None, public_port: int | None, listening: tuple[str, ...]
) -> tuple[str, ...]:
    """The address that a NAT maps to the first listener; none without `public_ip`."""
    if public_ip is None:
        return ()
    port = public_port if public_port is not None else listening[0].rpartition("/")[2]
    return (_multiaddr(public_ip, port),)


def _multiaddr(host: str, port: int | str) -> str:
    return check_addr(f"/{'ip6' if ':' in host else 'ip4'}/{host}/tcp/{port}")


def _public_url(worker: WorkerTable) -> str:
    if not worker.api_enabled:
        return ""
    port = worker.public_api_port or worker.api_port
    if worker.public_api_url is not None or worker.public_ip is None or not port:
        return worker.public_api_url or ""
    return f"http://{bracketed(worker.public_ip)}:{port}"


def _allowed(worker: WorkerTable, listening: tuple[str, ...]) -> bool | tuple[Cidr, ...]:
    if worker.allow_private_addrs is None:
        return all(map(is_private, listening))
    return worker.allow_private_addrs


def _check_together(worker: WorkerTable) -> None:
    for name in ("public_p2p_port", "public_api_port"):
        if getattr(worker, name) is not None and worker.public_ip is None:
            raise BadConfig(f"{name} needs public_ip")
    if worker.bootstrap_peers and not worker.kademlia_enabled:
        raise BadConfig("bootstrap_peers are peers of the swarm, and kademlia_enabled is false")
    if worker.kv_cache_type not in (AUTO, worker.dtype):
        raise BadConfig(
            f"kv_cache_type = {worker.kv_cache_type}: the engine keeps keys and values in the "
            f"serving type, so dtype has to be {worker.kv_cache_type} too"
        )
    if worker.chat_template is not None and not worker.chat_template.is_file():
        raise BadConfig(f"chat_template: there is no file {worker.chat_template}")
