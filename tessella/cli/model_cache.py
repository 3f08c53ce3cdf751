"""Fetched models that this node does not need, and how they go: told first, deleted if asked to.

The cache is what can be fetched again: models of the catalogue, directories of the hub (`org/name`)
and what a fetch that broke off has left. A file that was put among them by hand stays, and so does
what another program on this machine uses, and whatever a symbolic link leads to.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from tessella.catalogue import CATALOGUE, is_hub_name
from tessella.cli.pull import DRAFT_PREFIX, STALE_SECONDS, obtain
from tessella.core.errors import BadConfig
from tessella.core.text import one_line

PART_SUFFIX = ".part"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One thing that could be deleted."""

    name: str
    """Relative to the models directory."""
    path: Path
    """Absolute, with no symbolic link on the way."""
    nbytes: int
    age: float = 0.0
    """Seconds since it was changed."""

    @property
    def is_draft(self) -> bool:
        """Whether a fetch is at work on it, or was."""
        return self.path.name.startswith(".")


def plan_deletion(entries: Iterable[CacheEntry], needed: Iterable[Path]) -> list[CacheEntry]:
    """What of a cache may go, by name: all but what holds one of the paths that are needed, and
    drafts that a fetch may still be at work on. Paths are absolute, without symbolic links."""
    kept = list(needed)

    def goes(entry: CacheEntry) -> bool:
        if any(path == entry.path or entry.path in path.parents for path in kept):
            return False
        return not entry.is_draft or entry.age > STALE_SECONDS

    return sorted(filter(goes, entries), key=lambda entry: entry.name)


def prune(directory: Path, needed: Path, mode: str, say: Say) -> list[CacheEntry]:
    """Tell, and with `on` delete, what a node with the model at `needed` does not need.

    What was deleted, or with `dry-run` what would be. What cannot be deleted is told, and stays.
    """
    if mode == "off":
        return []
    return _delete(plan_deletion(cache_entries(directory), [needed.resolve()]), mode == "on", say)


def clean(directory: Path, weights: Path | None, say: Say) -> list[CacheEntry]:
    """Delete all of the cache, so that what is needed is fetched anew.

    `weights` are files that the operator named by their path: they are never deleted.
    """
    kept = [weights.resolve()] if weights is not None else []
    return _delete(plan_deletion(cache_entries(directory), kept), True, say)


async def renew(directory: Path, model: str | None, weights: str | None, say: Say) -> None:
    """Clean the cache, and fetch anew what a node with these settings needs of it.

    `model` and `weights` are as in the settings: weights may be a path, which is left alone, or a
    name as well. Raises as `clean` and `obtain`.
    """
    named = _path_of(weights)
    await trio.to_thread.run_sync(clean, directory, named, say)
    wanted = weights or model
    if named is None and wanted:
        await obtain(wanted, say)


def _path_of(weights: str | None) -> Path | None:
    path = Path(weights).expanduser() if weights else None
    return path if path is not None and path.exists() else None


def cache_entries(directory: Path) -> list[CacheEntry]:
    """What lies in a models directory and can be fetched again, or is the rest of a fetch.

    Raises BadConfig for a directory that cannot be read; one that is not there is empty.
    """
    root, now = directory.resolve(), time.time()
    try:
        return [
            CacheEntry(path.relative_to(root).as_posix(), path, _size(path), now - _changed(path))
            for path in _candidates(root)
        ]
    except OSError as exc:
        raise BadConfig(f"cannot read {directory}: {exc.strerror}") from exc


def _candidates(root: Path) -> Iterator[Path]:
    for entry in _inside(root):
        name = entry.name
        if entry.is_file(follow_symlinks=False):
            if name.removesuffix(".gguf") in CATALOGUE and name.endswith(".gguf"):
                yield Path(entry.path)
        elif name.startswith(DRAFT_PREFIX):
            yield Path(entry.path)
        elif not name.startswith("."):
            yield from _of_hub(root, Path(entry.path))


def _of_hub(root: Path, organisation: Path) -> Iterator[Path]:
    for entry in _inside(organisation):
        path = Path(entry.path)
        is_model = is_hub_name(path.relative_to(root).as_posix()) and _looks_like_one(path)
        is_part = entry.name.startswith(".") and entry.name.endswith(PART_SUFFIX)
        if entry.is_dir(follow_symlinks=False) and (is_model or is_part):
            yield path


def _inside(directory: Path) -> list[os.DirEntry[str]]:
    if not directory.is_dir():
        return []
    with os.scandir(directory) as entries:
        return [entry for entry in entries if not entry.is_symlink()]


def _looks_like_one(path: Path) -> bool:
    return (path / "config.json").is_file()


def _size(path: Path) -> int:
    """Bytes of a file, or of the files below a directory; links count as nothing."""
    if not path.is_dir():
        return path.lstat().st_size
    below = (Path(top) / name for top, _, names in os.walk(path) for name in names)
    return sum(file.lstat().st_size for file in below if not file.is_symlink())


def _changed(path: Path) -> float:
    return path.lstat().st_mtime


def _delete(entries: list[CacheEntry], is_meant: bool, say: Say) -> list[CacheEntry]:
    gone = []
    for entry in entries:
        told = f"{one_line(entry.name)} ({entry.nbytes / 1e6:.0f} MB)"
        if not is_meant:
            say(f"would delete {told}")
        elif is_used(entry.path):
            say(f"kept {told}: another program uses it")
            continue
        else:
            try:
                _remove(entry.path)
            except OSError as exc:
                say(f"cannot delete {told}: {exc.strerror}")
                continue
            say(f"deleted {told}")
        gone.append(entry)
    return gone


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        # Goes by file descriptors: a link that is put in its way meanwhile is not followed.
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def used(weights: Path) -> Iterator[None]:
    """Other programs that prune leave a model alone while the body runs."""
    handle = _open(weights)
    try:
        if handle is not None:
            fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def is_used(weights: Path) -> bool:
    """Whether a program holds a model with `used`."""
    handle = _open(weights)
    if handle is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def _open(weights: Path) -> int | None:
    """A handle on the files of a model as a whole; None where there is none to be had."""
    try:
        return os.open(weights, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
