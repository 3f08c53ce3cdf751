"""The wizard from its first question to the file."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tessella.cli.wizard.answers import Answers, config_text
from tessella.cli.wizard.machine import Machine, this_machine
from tessella.cli.wizard.meshes import OpenDoor, ask_mesh, open_door
from tessella.cli.wizard.places import ask_key, ask_ports, ask_weights
from tessella.cli.wizard.talk import Talk, TerminalTalk, ask_yes
from tessella.cli.wizard.work import ask_work
from tessella.core.errors import BadConfig, BadKey
from tessella.ending import EndedBySignal
from tessella.keys import load_or_create_key, write_secret

UNIT = "deploy/tessella-worker.service"
_WHAT = "the configuration"


def run_wizard(path: Path, environ: Mapping[str, str]) -> None:
    """Ask for all that a node needs, and write the configuration file and the key.

    Both are for their owner alone, and a file that is there is never overwritten. Raises
    BadConfig or BadKey for what cannot be written, and for a file that is not wanted in the end;
    EndedBySignal for Ctrl-C and Ctrl-D. Then nothing is written.
    """
    talk = TerminalTalk()
    try:
        answers = converse(talk, path, environ)
    except (KeyboardInterrupt, EOFError, EndedBySignal) as exc:
        sys.stderr.write(f"\ntessella-worker: ended, and nothing was written: no {path}\n")
        number = exc.number if isinstance(exc, EndedBySignal) else signal.SIGINT
        raise EndedBySignal(number) from None
    write(talk, path, answers)


def converse(
    talk: Talk,
    path: Path,
    environ: Mapping[str, str],
    *,
    machine: Callable[[], Machine] = this_machine,
    opened: OpenDoor = open_door,
) -> Answers:
    """All questions, and at the end whether the file shall be written.

    Raises BadConfig where it cannot be, or shall not; EOFError and KeyboardInterrupt as `Talk.ask`.
    """
    check_writable(path)
    talk.say(f"There is no {path}: a few questions make one.")
    talk.say("Return takes what stands in (brackets). Ctrl-C ends this, and writes nothing.")
    talk.say("This machine is looked at first, which takes some seconds.")
    here = machine()
    for note in here.notes:
        talk.say(f"{note}.")
    mesh = ask_mesh(talk, environ, opened, here.devices[0])
    work = ask_work(talk, mesh, here)
    weights = ask_weights(talk, work.model)
    key = ask_key(talk)
    api_port, p2p_port = ask_ports(talk, here)
    answers = Answers(
        orchestrator=mesh.orchestrator.text,
        bootstrap=mesh.orchestrator.bootstrap,
        layers=work.layers,
        model=work.model,
        device=work.device,
        claim_mb=work.claim_mb,
        models_dir=weights.models_dir,
        weights=weights.weights,
        key=key,
        api_port=api_port,
        p2p_port=p2p_port,
    )
    talk.title(str(path))
    talk.show(config_text(answers))
    if not ask_yes(talk, "Write it"):
        raise BadConfig(f"{path} was not written, as you wished")
    return answers


def check_writable(path: Path) -> None:
    """Raise BadConfig now where a file could not be written in the end."""
    if os.path.lexists(path):
        raise BadConfig(f"{path} is there already, and is not overwritten")
    parent = next(each for each in path.absolute().parents if each.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        raise BadConfig(f"cannot write {path}: {parent} is not a directory that you may write in")


def write(talk: Talk, path: Path, answers: Answers) -> None:
    """Make the key, if there is none, and the file; say where, and how to start again."""
    identity = load_or_create_key(answers.key)
    try:
        write_secret(path, _WHAT, config_text(answers).encode())
    except FileExistsError:
        raise BadConfig(f"{path} was written by another program meanwhile") from None
    except BadKey as exc:
        raise BadConfig(str(exc)) from None
    path = path.absolute()
    talk.say(f"Written: {path}, which only you may read.")
    talk.say(f"This node is {identity.peer_id}; keep a copy of {answers.key}.")
    talk.say("It starts again, without questions, with")
    talk.show(f"tessella-worker --config {shlex.quote(str(path))}")
    talk.say(f"and as a service of systemd by {UNIT}.")
