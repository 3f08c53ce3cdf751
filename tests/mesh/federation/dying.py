"""A musivum that dies by SIGKILL in the middle of a page of its partner's, once it is told to.

python -m tests.mesh.federation.dying serve --data DIR …

It dies after the next statement that begins as the file `die.at` in DIR says. All else is as in the
program.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from sqlalchemy import Engine, event

# After the entries of a page; after proofs were marked; before all of it is committed.
POINTS = ("INSERT INTO entries", "INSERT INTO proofs", "UPDATE partners")


def trap(home: Path) -> Path:
    """The file that says where to die; gone once it is sprung."""
    return home / "die.at"


def wrap(home: Path) -> None:
    """Have every database of this process look at the trap."""
    file = trap(home)

    def executed(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if file.exists() and statement.startswith(file.read_text()):
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "after_cursor_execute", executed)


if __name__ == "__main__":
    from musivum.cli.main import run

    wrap(Path(sys.argv[sys.argv.index("--data") + 1]))
    run()
