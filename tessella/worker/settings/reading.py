"""From flags, environment and file to what is set, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tessella.catalogue import HOME_VARIABLE, models_directory
from tessella.settings.fold import fold
from tessella.settings.keys import Keys, keys_of
from tessella.settings.kinds import plain
from tessella.settings.masking import HIDDEN, masked
from tessella.settings.sources import environment_source, file_source, flags_source
from tessella.worker.settings.tables import TABLES, GpuTable, MeshTable, WorkerTable

FILE_NAME = "worker_config.toml"
FILE_IN_HOME = Path("~/.config/tessella") / FILE_NAME
PREFIX = "TESSELLA_"
MAX_FILE_BYTES = 64 * 1024
"""Every key with what it means is 10 KB."""
TOKEN_VARIABLE = "HF_TOKEN"
"""The secret with which gated models are fetched."""
OTHER_VARIABLES = (HOME_VARIABLE, TOKEN_VARIABLE)

KEYS = Keys(
    {
        name: one
        for section, table in TABLES.items()
        for name, one in keys_of(table, PREFIX, section=section).items()
    },
    prefix=PREFIX,
    others=OTHER_VARIABLES,
)
"""Every key, in the order of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What is set, and who set it."""

    mesh: MeshTable
    worker: WorkerTable
    gpu: GpuTable
    sources: Mapping[str, str]
    """For every key: `default`, `file`, `environment` or `flag`."""
    file: Path | None
    """The file that was read."""

    def effective(self) -> dict[str, object]:
        """Every key with the value that holds, as JSON has it; without any password."""
        tables = {"": self.mesh, "worker": self.worker, "gpu": self.gpu}
        values = {
            name: plain(getattr(tables[one.section], name)) for name, one in KEYS.by_name.items()
        }
        values |= {
            "keypair_path": str(self.mesh.keypair_path.expanduser()),
            "models_dir": str(self.worker.models_dir or models_directory()),
        }
        return {name: _shown(value) for name, value in values.items()}


def read_node_settings(
    file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> NodeSettings:
    """Flag before environment before file before default, key by key.

    `file` is read as it is; None reads none (see `usual_file`). `flags` are values by key as TOML
    would have them; None is not set, as is an environment variable without text.
    Raises BadConfig that names key, value and source, and for a flag also BadAddress.
    """
    sources = [file_source(KEYS, file, MAX_FILE_BYTES)] if file is not None else []
    folded = fold(KEYS, (*sources, environment_source(KEYS, environ), flags_source(KEYS, flags)))
    mesh, worker, gpu = (
        {name: value for name, value in folded.values.items() if KEYS.by_name[name].section == one}
        for one in TABLES
    )
    return NodeSettings(
        mesh=MeshTable(**mesh),
        worker=WorkerTable(**worker),
        gpu=GpuTable(**gpu),
        sources=folded.sources,
        file=file,
    )


def usual_file() -> Path | None:
    """The file that is read where none is named: here, or in the home directory; None for none."""
    for path in (Path(FILE_NAME), FILE_IN_HOME.expanduser()):
        if path.exists():
            return path
    return None


def missing(settings: NodeSettings) -> list[str]:
    """What a node needs and nobody set: each with its flags and variables, for a sentence."""
    mesh, worker = settings.mesh, settings.worker
    found = []
    if not mesh.orchestrator_url and not worker.kademlia_enabled:
        found.append(f"{_spelled('orchestrator_url')} or {_spelled('kademlia_enabled')}")
    if worker.kademlia_enabled and not mesh.orchestrator_url and worker.layer_range is None:
        found.append(f"{_spelled('layer_range')}, for nobody assigns one without an orchestrator")
    if mesh.default_model is None and worker.weights is None:
        found.append(f"{_spelled('default_model')} or {_spelled('weights')}")
    if worker.vram_mb is None:
        found.append(_spelled("vram_mb"))
    return found


def _spelled(name: str) -> str:
    one = KEYS.by_name[name]
    return f"{name} ({', '.join((*one.flags[:1], *one.variables))})"


def _shown(value: object) -> object:
    match value:
        case str():
            return masked(value)
        case list():
            return [_shown(each) for each in value]
    return value


def token_shown(environ: Mapping[str, str]) -> str | None:
    """What may be shown of the token: that there is one."""
    return HIDDEN if environ.get(TOKEN_VARIABLE, "").strip() else None
