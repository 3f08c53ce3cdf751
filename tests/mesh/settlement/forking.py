"""Programs that start at once: forked by one that imported them all.

    python -m tests.mesh.settlement.forking < births > deaths

Each line of its input is a Birth in JSON, each line of its output a fact: a child was born, or
ended with a status. It ends with its input, and its children with it. A child is the program as it
is; one with traps dies by SIGKILL at the point that a Trap names, as `killing` has it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NoReturn

LOOK_SECONDS = 0.02
READ_BYTES = 65536
# With all that they import: torch alone takes seconds.
MODULES = (
    "httpcore",
    "musivum.app",
    "musivum.cli.main",
    "musivum.settings.reach",
    "musivum.store",
    "p2p.host",
    "tessella.cli.worker",
    "tessella.worker.node",
)
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Birth:
    """A program that is to live."""

    name: str
    module: str
    args: list[str]
    home: str
    out: str
    err: str
    has_traps: bool


@dataclass
class Parent:
    """Whose children live."""

    children: dict[int, str] = field(default_factory=dict)

    def bear(self, birth: Birth) -> None:
        """Fork it."""
        # Held by us alone: its program ends when we do.
        stdin, ours = os.pipe()
        handles = (stdin, *(os.open(path, _FRESH) for path in (birth.out, birth.err)))
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            _live(birth, handles)
        for handle in handles:
            os.close(handle)
        self.children[pid] = birth.name
        _tell(name=birth.name, pid=pid)

    def bury(self) -> None:
        """Say who ended, and how."""
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _tell(name=self.children.pop(pid), status=os.waitstatus_to_exitcode(status))


def _tell(**fact: object) -> None:
    print(json.dumps(fact), flush=True)  # noqa: T201 - what is read by whoever asked


def _live(birth: Birth, handles: Sequence[int]) -> NoReturn:
    try:
        for handle, known in zip(handles, (0, 1, 2), strict=True):
            os.dup2(handle, known)
        # A program that thaws what is here would look through all of it, and copy its pages.
        gc.unfreeze = _leave_frozen
        os.environ["TESSELLA_HOME"] = birth.home
        if birth.has_traps:
            from tests.mesh.settlement.killing import wrap

            wrap(birth.module, Path(birth.home))
        sys.argv = [birth.module, *birth.args]
        # It was imported: so it is run as it is, and its imports are there.
        sys.modules.pop(birth.module, None)
        runpy.run_module(birth.module, run_name="__main__", alter_sys=True)
        os._exit(0)
    except SystemExit as exc:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exc.code if isinstance(exc.code, int) else int(exc.code is not None))
    except BaseException:  # noqa: BLE001 - a fork never goes on as its parent
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(70)


def _leave_frozen() -> None:
    """In place of `gc.unfreeze`."""


def _import_all() -> None:
    for module in MODULES:
        importlib.import_module(module)
    # What is here stays, so no child looks through it, and its pages are shared.
    gc.collect()
    gc.freeze()


def main() -> None:
    """Bear and bury until there is no more to read."""
    _import_all()
    parent, buffer = Parent(), b""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        parent.bury()
        if not select.select([0], [], [], LOOK_SECONDS)[0]:
            continue
        data = os.read(0, READ_BYTES)
        if not data:
            return
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            parent.bear(Birth(**json.loads(line)))


def line_of(birth: Birth) -> bytes:
    """A birth, for the input."""
    return json.dumps(asdict(birth)).encode() + b"\n"


if __name__ == "__main__":
    main()
