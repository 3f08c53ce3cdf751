"""The identity file: 32 secret bytes that only their owner may read.

A key is made where there is none, in one step: whoever looks sees no file or a whole one, and of
two programs that start at once both end up with the same key.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from tessella.core.errors import BadKey
from tessella.core.identity import SEED_BYTES, Identity

KEY_MODE = 0o600
DIRECTORY_MODE = 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def load_or_create_key(path: Path) -> Identity:
    """The identity in a file, made first if there is no file. Raises BadKey that names the path."""
    with contextlib.suppress(FileNotFoundError):
        return load_key(path)
    with contextlib.suppress(FileExistsError):
        return create_key(path)
    return load_key(path)


def load_key(path: Path) -> Identity:
    """The identity in a file.

    Raises FileNotFoundError if there is none, and BadKey for one of another size, one that others
    may read, and one that cannot be read.
    """
    try:
        # Without O_NONBLOCK a pipe in the key's place would be waited for.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise BadKey(f"cannot read the key {path}: {exc.strerror}") from exc
    try:
        _check_mode(path, os.fstat(handle).st_mode)
        seed = os.read(handle, SEED_BYTES + 1)
    except OSError as exc:
        raise BadKey(f"cannot read the key {path}: {exc.strerror}") from exc
    finally:
        os.close(handle)
    if len(seed) != SEED_BYTES:
        size = f"{len(seed)} bytes" if len(seed) < SEED_BYTES else "more"
        raise BadKey(f"the key {path} has to be {SEED_BYTES} bytes, and has {size}")
    return Identity(seed)


def _check_mode(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise BadKey(f"the key {path} is not a file")
    if mode & _OTHERS:
        bits = stat.S_IMODE(mode)
        raise BadKey(f"others may use the key {path} (mode {bits:04o}): chmod 600 it")


def create_key(path: Path) -> Identity:
    """A fresh identity, written to a file that must not exist, with mode 0600.

    Missing directories are made for their owner alone. Raises FileExistsError, and BadKey where
    the file cannot be written.
    """
    seed = secrets.token_bytes(SEED_BYTES)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        try:
            _write(draft, seed)
            os.link(draft, path)
        finally:
            draft.unlink(missing_ok=True)
    except FileExistsError:
        if path.exists():
            raise
        raise BadKey(f"cannot write the key {path}: {path.parent} is not a directory") from None
    except OSError as exc:
        raise BadKey(f"cannot write the key {path}: {exc.strerror}") from exc
    return Identity(seed)


def _write(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, KEY_MODE)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)
