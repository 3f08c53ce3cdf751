"""What claims would get: the checkpoint's prices, and musivum's own placement, asked beforehand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tessella.cli.extras import worker_extra
from tessella.cli.render import Document
from tessella.core.errors import BadConfig, ClaimTooSmall
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange, holes
from tessella.core.peers import NodeStatus
from tessella.core.plan import Holding, MemoryTerms, Refuse, claim_for, place, terms_of
from tessella.core.shapes import DType, ModelShape
from tessella.worker.settings.kinds import MAX_CLAIM_MB


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a model on disk is, and how this machine would serve it."""

    shape: ModelShape
    device: str
    dtype: DType

    def terms(self, *, context: int, slots: int, min_vram_mb: int) -> MemoryTerms:
        """The prices that a node of these settings registers with."""
        return terms_of(
            self.shape,
            self.dtype,
            context=min(context, self.shape.context),
            slots=slots,
            min_vram_mb=min_vram_mb,
        )


def read_checkpoint(path: Path, device: str | None, dtype: DType | None) -> Checkpoint:
    """Read a model's headers. Raises BadWeights, UnsupportedModel, BadConfig."""
    with worker_extra():
        from tessella.engine.device import pick_device, serving_dtype
        from tessella.engine.weights import open_checkpoint

    found = pick_device(device)
    with closing(open_checkpoint(path)) as opened:
        stored = (info.stored for info in opened.tensors.values())
        return Checkpoint(opened.shape, found.value, dtype or serving_dtype(found, stored))


def dtype_of(word: str | None) -> DType | None:
    """A dtype by its word; None for none. Raises BadConfig that names the word."""
    try:
        return None if word is None else DType(word)
    except ValueError:
        known = ", ".join(each.value for each in DType)
        raise BadConfig(f"unknown dtype {word!r}; one of {known}") from None


def parse_claims(text: str) -> list[int]:
    """`"300,300,400"` as claims in MB. Raises BadConfig that names the part at fault."""
    claims = []
    for part in text.split(","):
        digits = part.strip()
        if not (digits.isdecimal() and digits.isascii() and 1 <= int(digits) <= MAX_CLAIM_MB):
            raise BadConfig(f"a claim is a whole number of MB, at least 1, not {digits!r}")
        claims.append(int(digits))
    return claims


@dataclass(frozen=True, slots=True)
class Layout:
    """What claims would get on an empty mesh, in this order."""

    terms: MemoryTerms
    claims: tuple[int, ...]
    answers: tuple[LayerRange | Refuse, ...]

    @property
    def ranges(self) -> list[LayerRange]:
        """The ranges of those that get one."""
        return [answer for answer in self.answers if isinstance(answer, LayerRange)]

    @property
    def holes(self) -> list[LayerRange]:
        """The layers that nobody gets."""
        return holes(self.ranges, self.terms.layers)

    def check(self) -> None:
        """Raise ClaimTooSmall, naming claim or layers and the MB needed, if a mesh lacks some."""
        for number, answer in enumerate(self.answers, 1):
            if isinstance(answer, Refuse):
                raise ClaimTooSmall(f"worker {number}: {answer}")
        if missing := self.holes:
            needs = ", ".join(f"{hole} needs {claim_for(self.terms, hole)} MB" for hole in missing)
            raise ClaimTooSmall(
                f"claims of {', '.join(map(str, self.claims))} MB leave layers of "
                f"{self.terms.layers} to nobody: {needs} more"
            )

    def document(self) -> Document:
        """The layout and the prices behind it, as JSON."""
        terms = self.terms
        return {
            "total_layers": terms.layers,
            "tied": terms.tied,
            "weights_per_layer_mb": round(terms.weights_per_layer_mb, 3),
            "kv_per_layer_mb": round(terms.kv_per_layer_mb, 3),
            "embedding_mb": round(terms.embedding_mb, 3),
            "head_mb": round(terms.head_mb, 3),
            "usable_vram_pct": terms.usable_vram_pct,
            "min_vram_mb": terms.min_vram_mb,
            "whole_model_claim_mb": claim_for(terms, terms.whole),
            "ranges": [
                _answer_document(claim, answer, terms)
                for claim, answer in zip(self.claims, self.answers, strict=True)
            ],
            "holes": [
                {"start": hole.start, "stop": hole.stop, "claim_mb": claim_for(terms, hole)}
                for hole in self.holes
            ],
        }


def lay_out(terms: MemoryTerms, claims: Iterable[int]) -> Layout:
    """Place claims one after another, as musivum does."""
    held: list[Holding] = []
    answers: list[LayerRange | Refuse] = []
    asked: Sequence[int] = tuple(claims)
    for number, claim in enumerate(asked):
        answer = place(terms, held, claim)
        answers.append(answer)
        if isinstance(answer, LayerRange):
            held.append(Holding(PeerId(str(number)), answer, NodeStatus.HEALTHY))
    return Layout(terms, tuple(asked), tuple(answers))


def _answer_document(claim: int, answer: LayerRange | Refuse, terms: MemoryTerms) -> Document:
    if isinstance(answer, Refuse):
        return {"claim_mb": claim, "layer_range": None, "needed_mb": answer.needed_mb}
    needed = claim_for(terms, answer)
    return {"claim_mb": claim, "layer_range": [answer.start, answer.stop], "needed_mb": needed}
