"""What to offer: a claim in MB from the memory that is free and from what the mesh lacks."""

from __future__ import annotations

from tessella.cli.wizard.bodies import PreviewBody
from tessella.cli.wizard.offers import Offer
from tessella.core.errors import BadConfig
from tessella.worker.settings.kinds import MAX_CLAIM_MB

# Where nobody says what is free.
DEFAULT_CLAIM_MB = 2048
# Of free memory, in percent: the rest is for this program itself, and for whatever else runs.
SHARE_PCT = 90


def wanted_mb(offer: Offer) -> int | None:
    """The claim that does for the mesh what it needs; more would not do more."""
    if offer.need is not None:
        return offer.need.claim_mb
    return offer.replica_mb


def propose_claim(offer: Offer, memory_mb: int | None) -> int:
    """What is wanted where memory has room for it; else most of the memory, never above it."""
    wanted = wanted_mb(offer)
    if memory_mb is None:
        return wanted or DEFAULT_CLAIM_MB
    if wanted is not None and wanted <= memory_mb:
        return wanted
    return max(1, memory_mb * SHARE_PCT // 100)


def proposal_text(offer: Offer, device: str, memory_mb: int | None) -> str:
    """Why that claim is proposed, in a sentence or three."""
    if memory_mb is None:
        told = [f"How much memory {device} has free cannot be told here."]
    else:
        told = [f"{device} has {memory_mb} MB free."]
    wanted = wanted_mb(offer)
    if offer.need is not None:
        takes = f": {wanted} MB hold them" if wanted is not None else ""
        told.append(f"Layers {offer.need.layers} are held by nobody{takes}.")
    elif wanted is not None:
        told.append(f"No layer lacks a node; {wanted} MB hold the whole model, as a replica.")
    if wanted is not None and memory_mb is not None and wanted > memory_mb:
        told.append("That is more than is free, so a part of it is proposed.")
    if offer.floor_mb:
        told.append(f"No claim may be below {offer.floor_mb} MB.")
    return " ".join(told)


def read_claim(text: str) -> int:
    """A whole number of MB. Raises BadConfig."""
    digits = text.lower().removesuffix("mb").strip()
    if not (digits.isdecimal() and digits.isascii() and len(digits) <= len(str(MAX_CLAIM_MB))):
        raise BadConfig(f"a claim is a whole number of MB, not {text!r}")
    if not 1 <= int(digits) <= MAX_CLAIM_MB:
        raise BadConfig(f"a claim is 1 to {MAX_CLAIM_MB} MB, not {text}")
    return int(digits)


def preview_text(claim_mb: int, preview: PreviewBody) -> str:
    """What a claim would get."""
    what = f"layers {preview.layers} of {preview.total_layers}"
    if preview.is_replica:
        what = f"the whole model, layers {preview.layers}, as a replica"
    return f"A claim of {claim_mb} MB would get {what}."
