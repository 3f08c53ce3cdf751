"""Files that are rewritten while they are used: for their owner alone, whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from tessella.core.errors import BadConfig
from tessella.keys import DIRECTORY_MODE, write_new


def replace_file(path: Path, what: str, text: str) -> None:
    """Put a text in the place of a file, with mode 0600, in one step.

    Missing directories are made for their owner alone. `what` is how errors call the file.
    Raises BadConfig that names it.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        try:
            write_new(draft, text.encode())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as exc:
        raise BadConfig(f"cannot write {what} {path}: {exc.strerror}") from exc


def read_file(path: Path, what: str, most: int) -> str:
    """The text of a file of at most `most` bytes.

    Raises FileNotFoundError if there is none, and BadConfig that names one that cannot be read.
    """
    try:
        # Without O_NONBLOCK a pipe in the file's place would be waited for.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise BadConfig(f"{what} {path} is longer than {most} bytes")
        return data.decode()
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise BadConfig(f"cannot read {what} {path}: {exc.strerror}") from exc
    except UnicodeDecodeError:
        raise BadConfig(f"{what} {path} is not UTF-8") from None
