"""The tree against RFC 6962 as its text says it: roots, proofs, and that nothing else passes."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessella.core.errors import BadRequest, LocalError, TessellaError, UnknownEntry
from tessella.core.ledger.tree import (
    EMPTY_ROOT,
    Frontier,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    node_hash,
    root,
    verify_consistency,
    verify_inclusion,
)

# The inputs and roots that implementations of RFC 6962 have shared since the first of them.
INPUTS = (
    b"",
    bytes.fromhex("00"),
    bytes.fromhex("10"),
    bytes.fromhex("2021"),
    bytes.fromhex("3031"),
    bytes.fromhex("40414243"),
    bytes.fromhex("5051525354555657"),
    bytes.fromhex("606162636465666768696a6b6c6d6e6f"),
)
ROOTS = (
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)
LEAVES = [leaf_hash(str(number).encode()) for number in range(70)]

sizes = st.integers(0, len(LEAVES))


def naive_root(leaves: list[bytes]) -> bytes:
    """MTH of section 2.1, over leaf hashes."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = naive_split(len(leaves))
    return node_hash(naive_root(leaves[:split]), naive_root(leaves[split:]))


def naive_split(count: int) -> int:
    split = 1
    while split * 2 < count:
        split *= 2
    return split


def naive_path(index: int, leaves: list[bytes]) -> list[bytes]:
    """PATH of section 2.1.1."""
    if len(leaves) == 1:
        return []
    split = naive_split(len(leaves))
    if index < split:
        return [*naive_path(index, leaves[:split]), naive_root(leaves[split:])]
    return [*naive_path(index - split, leaves[split:]), naive_root(leaves[:split])]


def naive_proof(old: int, leaves: list[bytes], whole: bool = True) -> list[bytes]:
    """SUBPROOF of section 2.1.2."""
    if old == len(leaves):
        return [] if whole else [naive_root(leaves)]
    split = naive_split(len(leaves))
    if old <= split:
        return [*naive_proof(old, leaves[:split], whole), naive_root(leaves[split:])]
    return [*naive_proof(old - split, leaves[split:], False), naive_root(leaves[:split])]


def node(level: int, index: int) -> bytes:
    """What a store keeps, for a tree of all the leaves."""
    leaves = LEAVES[index << level : (index + 1) << level]
    assert len(leaves) == 1 << level, "a store was asked for a subtree that is not complete"
    return naive_root(leaves)


def spoiled(proof: tuple[bytes, ...]) -> list[tuple[bytes, ...]]:
    """Proofs that differ from this one in one thing each."""
    turned = bytes(byte ^ 1 for byte in proof[-1]) if proof else bytes(32)
    return [
        (*proof, bytes(32)),
        (bytes(32), *proof),
        (*proof[:-1], turned),
        (*proof[:-1], turned[:31]),
        *([proof[:-1], proof[1:]] if proof else []),
    ]


@pytest.mark.parametrize("size", range(9))
def test_the_roots_of_small_trees_are_these(size: int) -> None:
    assert root(map(leaf_hash, INPUTS[:size])).hex() == ROOTS[size]


def test_a_leaf_and_a_node_are_told_apart_by_their_first_byte() -> None:
    left, right = b"l" * 32, b"r" * 32
    assert leaf_hash(b"x") == hashlib.sha256(b"\0x").digest()
    assert node_hash(left, right) == hashlib.sha256(b"\1" + left + right).digest()
    assert hashlib.sha256().digest() == EMPTY_ROOT


@given(sizes)
def test_a_frontier_has_the_root_of_its_leaves(size: int) -> None:
    frontier = Frontier()
    for leaf in LEAVES[:size]:
        frontier = frontier.appended(leaf)
    assert frontier.size == size
    assert frontier.root == root(LEAVES[:size]) == naive_root(LEAVES[:size])
    assert Frontier(frontier.size, frontier.peaks) == frontier


def test_what_leaves_complete_is_every_complete_subtree() -> None:
    kept = {}
    frontier = Frontier()
    for leaf in LEAVES:
        for level, subtree in enumerate(frontier.completed(leaf)):
            kept[level, frontier.size >> level] = subtree
        frontier = frontier.appended(leaf)
    places = [(level, at) for level in range(7) for at in range(len(LEAVES) >> level)]
    assert kept == {place: node(*place) for place in places}


@pytest.mark.parametrize(
    ("size", "peaks"), [(1, ()), (0, (bytes(32),)), (3, (bytes(32),)), (1, (bytes(31),)), (-1, ())]
)
def test_peaks_that_are_not_of_that_size_are_refused(size: int, peaks: tuple[bytes, ...]) -> None:
    with pytest.raises(LocalError, match=f"a tree of {size}"):
        Frontier(size, peaks)


@given(st.data(), st.integers(1, len(LEAVES)))
def test_a_proof_of_inclusion_is_that_of_the_rfc_and_holds(data: st.DataObject, size: int) -> None:
    index = data.draw(st.integers(0, size - 1))
    proof = inclusion_proof(index, size, node)
    top = naive_root(LEAVES[:size])
    assert list(proof) == naive_path(index, LEAVES[:size])
    assert verify_inclusion(LEAVES[index], index, size, proof, top)


@given(st.data(), st.integers(1, len(LEAVES)))
def test_no_other_proof_leaf_or_place_is_included(data: st.DataObject, size: int) -> None:
    index = data.draw(st.integers(0, size - 1))
    proof = inclusion_proof(index, size, node)
    top = naive_root(LEAVES[:size])
    for other in spoiled(proof):
        assert not verify_inclusion(LEAVES[index], index, size, other, top)
    assert not verify_inclusion(bytes(32), index, size, proof, top)
    assert not verify_inclusion(LEAVES[index], index, size, proof, bytes(32))
    for place in (-1, index - 1, index + 1, size):
        assert not verify_inclusion(LEAVES[index], place, size, proof, top)


@given(sizes, sizes)
def test_a_proof_of_consistency_is_that_of_the_rfc_and_holds(one: int, two: int) -> None:
    old, new = sorted((one, two))
    proof = consistency_proof(old, new, node)
    assert list(proof) == (naive_proof(old, LEAVES[:new]) if old else [])
    roots = naive_root(LEAVES[:old]), naive_root(LEAVES[:new])
    assert verify_consistency(old, new, *roots, proof)


@given(st.integers(1, len(LEAVES)), st.integers(1, len(LEAVES)))
def test_no_other_history_is_consistent(one: int, two: int) -> None:
    old, new = sorted((one, two))
    proof = consistency_proof(old, new, node)
    first, second = naive_root(LEAVES[:old]), naive_root(LEAVES[:new])
    for other in spoiled(proof):
        assert not verify_consistency(old, new, first, second, other)
    assert not verify_consistency(old, new, bytes(32), second, proof)
    assert not verify_consistency(old, new, first, bytes(32), proof)
    forked = naive_root([bytes(32), *LEAVES[1:new]])
    assert not verify_consistency(old, new, first, forked, proof)
    if old < new:
        assert not verify_consistency(new, old, second, first, proof)


def test_every_tree_begins_with_the_empty_one_and_no_other_of_no_leaves() -> None:
    top = naive_root(LEAVES[:5])
    assert verify_consistency(0, 5, EMPTY_ROOT, top, ())
    assert not verify_consistency(0, 5, bytes(32), top, ())
    assert not verify_consistency(0, 5, EMPTY_ROOT, top, (bytes(32),))
    assert not verify_consistency(-1, 5, EMPTY_ROOT, top, ())


def test_a_proof_is_of_one_length_for_its_sizes() -> None:
    """Siblings that all stand to the left fit a smaller tree as well, but for their number."""
    three, four, seven, eight = (naive_root(LEAVES[:size]) for size in (3, 4, 7, 8))
    longer, shorter = inclusion_proof(7, 8, node), inclusion_proof(3, 4, node)
    assert not verify_inclusion(LEAVES[7], 3, 4, longer, eight)
    assert not verify_inclusion(LEAVES[3], 7, 8, shorter, four)
    assert not verify_consistency(3, 4, seven, eight, consistency_proof(7, 8, node))
    assert not verify_consistency(7, 8, three, four, consistency_proof(3, 4, node))


def test_two_hashes_cut_at_another_byte_are_no_proof() -> None:
    first, left = LEAVES[2], naive_root(LEAVES[:2])
    late, short = left[31:] + first, left[:31]
    forged = node_hash(short, node_hash(late, LEAVES[3]))
    old = naive_root(LEAVES[:3])
    assert not verify_consistency(3, 4, old, forged, (late, LEAVES[3], short))


def test_a_proof_asks_the_store_for_few_nodes() -> None:
    asked = []

    def counted(level: int, index: int) -> bytes:
        asked.append((level, index))
        return bytes(32)

    size = 2**40 - 1
    inclusion_proof(12_345, size, counted)
    assert len(asked) <= 2 * 40
    asked.clear()
    consistency_proof(12_345, size, counted)
    assert len(asked) <= 2 * 40 + 1


@pytest.mark.parametrize(
    ("call", "first", "second", "error"),
    [
        (inclusion_proof, 5, 5, UnknownEntry),
        (inclusion_proof, -1, 5, UnknownEntry),
        (inclusion_proof, 0, 0, UnknownEntry),
        (consistency_proof, 6, 5, BadRequest),
        (consistency_proof, -1, 5, BadRequest),
    ],
)
def test_what_is_not_there_cannot_be_proved(
    call: type[object], first: int, second: int, error: type[TessellaError]
) -> None:
    with pytest.raises(error):
        call(first, second, node)  # type: ignore[call-arg]
