"""The Merkle tree of RFC 6962 over the entries of a ledger, and the proofs that it gives.

    leaf = SHA256(0x00 || payload)        node = SHA256(0x01 || left || right)
    the root of n > 1 leaves joins the largest power of two below n with the rest

Strategy. Every tree is a row of complete subtrees, its peaks, one for each bit of its size, the
largest first. A frontier is these peaks: all that it takes to add a leaf or to know the root.
Proofs need hashes from inside; whoever keeps them gives `node(level, index)`, the root of the
complete subtree over the leaves [index << level, (index + 1) << level), and is asked for about
2 log2(size) of them. Complete subtrees never change, so what was kept once stays right.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tessella.core.errors import BadRequest, LocalError, UnknownEntry

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256().digest()

Node = Callable[[int, int], bytes]
"""The root of the complete subtree at a level (0: leaves) and place."""


def leaf_hash(payload: bytes) -> bytes:
    """What stands for a payload in the tree."""
    return hashlib.sha256(b"\0" + payload).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """What stands for two neighbours in the tree."""
    return hashlib.sha256(b"\1" + left + right).digest()


@dataclass(frozen=True, slots=True)
class Frontier:
    """A tree as its peaks, the largest first; `Frontier()` is empty.

    A value: a transaction that is rolled back leaves the one from before. Raises LocalError for
    peaks that are not those of a tree of that size.
    """

    size: int = 0
    peaks: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        fits = self.size >= 0 and len(self.peaks) == self.size.bit_count()
        if not fits or any(len(peak) != HASH_BYTES for peak in self.peaks):
            raise LocalError(f"{len(self.peaks)} peaks for a tree of {self.size} leaves")

    def completed(self, leaf: bytes) -> tuple[bytes, ...]:
        """The roots of the subtrees that one more leaf completes, the leaf first.

        The one of level k belongs at `node(k, size >> k)`, with the size before the leaf.
        """
        roots = [leaf]
        for peak in self.peaks[len(self.peaks) - _trailing_ones(self.size) :][::-1]:
            roots.append(node_hash(peak, roots[-1]))
        return tuple(roots)

    def appended(self, leaf: bytes) -> Frontier:
        """The tree with one more leaf hash."""
        roots = self.completed(leaf)
        kept = self.peaks[: len(self.peaks) - len(roots) + 1]
        return Frontier(self.size + 1, (*kept, roots[-1]))

    @property
    def root(self) -> bytes:
        """The root of the whole tree; of an empty one, EMPTY_ROOT."""
        return _joined(self.peaks)


def _trailing_ones(number: int) -> int:
    return (~number & (number + 1)).bit_length() - 1


def _joined(peaks: Sequence[bytes]) -> bytes:
    """The root over peaks, the largest first."""
    if not peaks:
        return EMPTY_ROOT
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = node_hash(peak, root)
    return root


def root(leaves: Iterable[bytes]) -> bytes:
    """The root over leaf hashes, in order."""
    frontier = Frontier()
    for leaf in leaves:
        frontier = frontier.appended(leaf)
    return frontier.root


def inclusion_proof(index: int, size: int, node: Node) -> tuple[bytes, ...]:
    """What joins a leaf to the root of a tree of `size` leaves, nearest first.

    Raises UnknownEntry for a leaf that is not among them.
    """
    if not 0 <= index < size:
        raise UnknownEntry(f"no entry {index} among {size}")
    path = []
    start, stop = 0, size
    while stop - start > 1:
        middle = start + _split(stop - start)
        if index < middle:
            path.append(_subtree(middle, stop, node))
            stop = middle
        else:
            path.append(_subtree(start, middle, node))
            start = middle
    return tuple(reversed(path))


def consistency_proof(old: int, new: int, node: Node) -> tuple[bytes, ...]:
    """What shows that the tree of `new` leaves begins with the one of `old`; may be empty.

    Raises BadRequest for sizes that do not follow each other.
    """
    if not 0 <= old <= new:
        raise BadRequest(f"no tree of {new} entries begins with one of {old}")
    if old in (0, new):
        return ()
    path = []
    start, stop = 0, new
    while stop != old:
        middle = start + _split(stop - start)
        if old <= middle:
            path.append(_subtree(middle, stop, node))
            stop = middle
        else:
            path.append(_subtree(start, middle, node))
            start = middle
    if start:  # whoever checks has the old root itself where it is a whole subtree
        path.append(_subtree(start, stop, node))
    return tuple(reversed(path))


def _split(count: int) -> int:
    """The largest power of two below a count of two or more."""
    return 1 << ((count - 1).bit_length() - 1)


def _subtree(start: int, stop: int, node: Node) -> bytes:
    """The root over a range that a split gave: its start is a multiple of its every peak."""
    peaks = []
    while start < stop:
        level = (stop - start).bit_length() - 1
        peaks.append(node(level, start >> level))
        start += 1 << level
    return _joined(peaks)


def verify_inclusion(
    leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes
) -> bool:
    """Whether a proof joins the leaf at a place to the root of a tree of `size` leaves."""
    if not 0 <= index < size:
        return False
    place, last = index, size - 1
    found = leaf
    for sibling in proof:
        if last == 0:
            return False
        if place & 1 or place == last:
            found = node_hash(sibling, found)
            place, last = _climbed_left(place, last)
        else:
            found = node_hash(found, sibling)
        place, last = place >> 1, last >> 1
    return last == 0 and found == root


def verify_consistency(
    old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]
) -> bool:
    """Whether a proof shows that the newer tree begins with all leaves of the older one."""
    if not 0 <= old <= new or any(len(sibling) != HASH_BYTES for sibling in proof):
        return False
    if old == 0:
        return not proof and old_root == EMPTY_ROOT
    if old == new:
        return not proof and old_root == new_root
    path = list(proof)
    if old & (old - 1) == 0:
        path.insert(0, old_root)
    return bool(path) and _replayed(old, new, path) == (old_root, new_root)


def _replayed(old: int, new: int, path: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """Both roots as a proof makes them, if it has as many steps as the sizes ask for."""
    place, last = old - 1, new - 1
    rise = _trailing_ones(place)
    place, last = place >> rise, last >> rise
    older = newer = path[0]
    for sibling in path[1:]:
        if last == 0:
            return None
        if place & 1 or place == last:
            older, newer = node_hash(sibling, older), node_hash(sibling, newer)
            place, last = _climbed_left(place, last)
        else:
            newer = node_hash(newer, sibling)
        place, last = place >> 1, last >> 1
    return (older, newer) if last == 0 else None


def _climbed_left(place: int, last: int) -> tuple[int, int]:
    """Past the levels at which a last subtree stands alone and is its own parent."""
    while place and not place & 1:
        place, last = place >> 1, last >> 1
    return place, last
