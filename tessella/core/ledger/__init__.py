"""The ledger of a musivum as values and rules: anyone who has its entries can check it.

    entries   one movement between accounts that sums to zero, chained to the one before
    tree      the Merkle tree of RFC 6962 over all entries, its proofs and who checks them
    heads     size, root and last hash, signed by whose ledger it is
    walk      entries read in order up to a head, and the first index that is bad
    pages     many entries as they travel

Who keeps a head of a ledger can not be told another history later: every later head has to come
with a consistency proof from the one that is kept.
"""

from __future__ import annotations

from tessella.core.ledger.entries import (
    KINDS,
    MAX_ENTRY,
    MAX_LINES,
    MAX_REASON,
    MINT,
    SLASHED,
    ZERO_HASH,
    Entry,
    Line,
    balances,
    entry_hash,
    follows,
    open_entry,
    seal_entry,
)
from tessella.core.ledger.heads import PURPOSE_LEDGER_HEAD, Head, open_head, seal_head
from tessella.core.ledger.pages import (
    MAX_PAGE_BYTES,
    MAX_PAGE_ENTRIES,
    pack_page,
    unpack_page,
)
from tessella.core.ledger.tree import (
    EMPTY_ROOT,
    Frontier,
    Node,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    node_hash,
    root,
    verify_consistency,
    verify_inclusion,
)
from tessella.core.ledger.walk import Walk

__all__ = [
    "EMPTY_ROOT",
    "KINDS",
    "MAX_ENTRY",
    "MAX_LINES",
    "MAX_PAGE_BYTES",
    "MAX_PAGE_ENTRIES",
    "MAX_REASON",
    "MINT",
    "PURPOSE_LEDGER_HEAD",
    "SLASHED",
    "ZERO_HASH",
    "Entry",
    "Frontier",
    "Head",
    "Line",
    "Node",
    "Walk",
    "balances",
    "consistency_proof",
    "entry_hash",
    "follows",
    "inclusion_proof",
    "leaf_hash",
    "node_hash",
    "open_entry",
    "open_head",
    "pack_page",
    "root",
    "seal_entry",
    "seal_head",
    "unpack_page",
    "verify_consistency",
    "verify_inclusion",
]
