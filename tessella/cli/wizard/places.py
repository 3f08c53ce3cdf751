"""Where things are on this machine: weights, the key, and the two ports."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tessella.catalogue import CATALOGUE, is_hub_name, models_directory
from tessella.cli.keys import DEFAULT_KEY
from tessella.cli.wizard.machine import Machine, read_port
from tessella.cli.wizard.talk import Talk, ask_for, sentence
from tessella.core.errors import BadConfig, InputError
from tessella.core.ids import PeerId
from tessella.keys import load_key

DEFAULT_MODELS = "./models"
DEFAULT_API_PORT = 8080
DEFAULT_P2P_PORT = 9080
MAX_PORT = 65535
GGUF = ".gguf"
CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class Weights:
    """A directory of models, or the files of one; the other is empty."""

    models_dir: str = ""
    weights: str = ""


def find_in(directory: Path, model: str) -> Path | None:
    """The model in a directory of models: NAME.gguf, or a directory of that name."""
    file, folder = directory / f"{model}{GGUF}", directory / model
    if file.is_file():
        return file
    return folder if (folder / CONFIG).is_file() else None


def read_weights(text: str) -> Weights:
    """What a path is. Raises BadConfig for one at which no weights can be.

    A directory that is not there yet is one of models.
    """
    if not text:
        raise BadConfig("weights are at a path")
    written = os.path.expanduser(text)
    # A bare word would be looked up as the name of a model.
    kept = written if written.startswith(("/", ".")) else f"./{written}"
    path = Path(kept)
    if path.is_dir():
        return Weights(weights=kept) if (path / CONFIG).is_file() else Weights(models_dir=kept)
    if path.exists() and path.suffix.lower() == GGUF:
        return Weights(weights=kept)
    if path.exists():
        raise BadConfig(f"{text} is neither a directory nor a {GGUF} file")
    if path.suffix.lower() == GGUF:
        raise BadConfig(f"{text} does not exist")
    return Weights(models_dir=kept)


def ask_weights(talk: Talk, model: str) -> Weights:
    """Ask where the weights are, and say whether they are there."""
    talk.title("Weights")
    talk.say(f"A directory that holds {model} by its name, a {GGUF} file of it, or its directory.")
    found = ask_for(talk, "Weights", read_weights, DEFAULT_MODELS)
    if found.models_dir:
        talk.say(_told(model, Path(found.models_dir)))
    return found


def _told(model: str, directory: Path) -> str:
    """Where a model is that is looked for in a directory, or how it comes to be there."""
    pulled = models_directory()
    for place in (directory, pulled):
        if found := find_in(place, model):
            return f"It is there: {found}."
    how = f" `tessella models pull {model}` fetches it{_size(model)} into {pulled}, where a node "
    missing = f"{model} is not there yet; it has to be when the node starts."
    can_be_pulled = model in CATALOGUE or is_hub_name(model)
    return f"{missing}{how}looks too." if can_be_pulled else missing


def _size(model: str) -> str:
    known = CATALOGUE.get(model)
    return f" ({known.size / 1e6:.0f} MB)" if known else ""


def ask_key(talk: Talk) -> Path:
    """Ask for the key's file; one that is there has to be usable."""
    talk.title("Identity")
    talk.say("Who loses the key loses the node's identity, and the balance of its credits.")
    path, peer_id = ask_for(talk, "Key file", read_key, str(DEFAULT_KEY))
    if peer_id is None:
        talk.say("There is none yet: it is made with the configuration.")
    else:
        talk.say(f"It is there: peer id {peer_id}.")
    return path


def read_key(text: str) -> tuple[Path, PeerId | None]:
    """The file, from the root on, and whose it is. Raises BadKey, BadConfig."""
    if not text:
        raise BadConfig("a key is in a file")
    # A service has another working directory than whoever answers here.
    path = Path(text).expanduser().absolute()
    try:
        return path, load_key(path).peer_id
    except FileNotFoundError:
        return path, None


def ask_ports(talk: Talk, machine: Machine) -> tuple[int, int]:
    """The port of the HTTP API and that of libp2p, both free, and not the same."""
    talk.title("Ports")
    api = _ask_port(talk, machine, "API port (HTTP)", DEFAULT_API_PORT, ())
    return api, _ask_port(talk, machine, "P2P port (libp2p)", DEFAULT_P2P_PORT, (api,))


def _ask_port(talk: Talk, machine: Machine, question: str, port: int, used: tuple[int, ...]) -> int:
    default = str(port)
    while True:
        text = talk.ask(question, default)
        try:
            port = read_port(text)
            if port in used:
                raise BadConfig(f"port {port} is the one of the API")
            machine.check_port(port)
        except InputError as exc:
            talk.say(sentence(exc))
            if text == default:
                default = str(min(port + 1, MAX_PORT))
        else:
            return port
