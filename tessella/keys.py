"""Secrets in files that only their owner may read: a node's identity, and whatever else is one.

A secret is made where there is none, in one step: whoever looks sees no file or a whole one, and
of two programs that start at once both end up with the same secret.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tessella.core.errors import BadKey
from tessella.core.identity import SEED_BYTES, Identity

T = TypeVar("T")

SECRET_MODE = 0o600
DIRECTORY_MODE = 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WHAT = "the key"


def load_or_create_key(path: Path) -> Identity:
    """The identity in a file, made first if there is no file. Raises BadKey that names the path."""
    return load_or_create(path, load_key, create_key)


def load_key(path: Path) -> Identity:
    """The identity in a file: 32 bytes.

    Raises FileNotFoundError if there is none, and BadKey for one of another size, one that others
    may read, and one that cannot be read.
    """
    seed = read_secret(path, _WHAT, SEED_BYTES)
    if len(seed) != SEED_BYTES:
        size = f"{len(seed)} bytes" if len(seed) < SEED_BYTES else "more"
        raise BadKey(f"the key {path} has to be {SEED_BYTES} bytes, and has {size}")
    return Identity(seed)


def create_key(path: Path) -> Identity:
    """A fresh identity, written to a file that must not exist; errors as `write_secret`."""
    seed = secrets.token_bytes(SEED_BYTES)
    write_secret(path, _WHAT, seed)
    return Identity(seed)


def load_or_create(path: Path, load: Callable[[Path], T], create: Callable[[Path], T]) -> T:
    """What `load` finds in a file, or what `create` makes where it raises FileNotFoundError.

    `create` raises FileExistsError where another program was faster; then that one's is loaded.
    """
    with contextlib.suppress(FileNotFoundError):
        return load(path)
    with contextlib.suppress(FileExistsError):
        return create(path)
    return load(path)


def read_secret(path: Path, what: str, most: int) -> bytes:
    """The bytes of a file; of a longer one `most` + 1.

    `what` is how errors call it. Raises FileNotFoundError if there is none, and BadKey for one
    that others may use, and one that cannot be read.
    """
    try:
        # Without O_NONBLOCK a pipe in the file's place would be waited for.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise BadKey(f"cannot read {what} {path}: {exc.strerror}") from exc
    try:
        _check_mode(path, what, os.fstat(handle).st_mode)
        return os.read(handle, most + 1)
    except OSError as exc:
        raise BadKey(f"cannot read {what} {path}: {exc.strerror}") from exc
    finally:
        os.close(handle)


def _check_mode(path: Path, what: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise BadKey(f"{what} {path} is not a file")
    if mode & _OTHERS:
        bits = stat.S_IMODE(mode)
        raise BadKey(f"others may use {what} {path} (mode {bits:04o}): chmod 600 it")


def write_secret(path: Path, what: str, data: bytes) -> None:
    """Write a file that must not exist, with mode 0600, in one step.

    Missing directories are made for their owner alone. Raises FileExistsError, and BadKey where
    the file cannot be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        try:
            write_new(draft, data)
            os.link(draft, path)
        finally:
            draft.unlink(missing_ok=True)
    except FileExistsError:
        if path.exists():
            raise
        raise BadKey(f"cannot write {what} {path}: {path.parent} is not a directory") from None
    except OSError as exc:
        raise BadKey(f"cannot write {what} {path}: {exc.strerror}") from exc


def write_new(path: Path, data: bytes) -> None:
    """Write a file that must not exist, with mode 0600, and have it on the disk. Raises OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, SECRET_MODE)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)
