"""Choosing the next token: a pure function of the logits, the ids so far, and what was asked.

No state is kept between tokens. Chance is a hash of (seed, position), penalties are counted from
the ids, and ties go to the lowest id, so that any tail that is given the same logits and ids goes
on with the same answer.

Order: logit_bias is added to what the model gives, as by llama.cpp and OpenAI; repetition, presence
and frequency penalties; ids that may not come are masked; then, as in transformers, temperature,
top_k, top_p over what is left, min_p.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tessella.core.errors import BadRequest, NotFinite
from tessella.core.sampling import Sampling

# How far below the best, in nats, top_p looks first, and then. Sorting a whole vocabulary takes
# milliseconds, and what is e**-7 times as probable as the best is seldom needed.
DEPTHS = (7.0, 14.0, math.inf)
_LOWEST = torch.finfo(torch.float32).min


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen token. Log-probabilities are the model's own: before penalties and temperature."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    """The `Sampling.logprobs` most probable ids with theirs, best first."""


@torch.inference_mode()
def choose(
    logits: Tensor,
    *,
    prompt: Sequence[int],
    answer: Sequence[int],
    sampling: Sampling,
    eos_ids: Collection[int],
    position: int,
    allowed: Tensor | None = None,
) -> Choice:
    """The token at `position` after `prompt` and `answer`, from `[vocab]` logits.

    `allowed`, `[vocab]` of bool, are the ids that may come; None is all of them. Raises NotFinite
    for logits with NaN or Inf, BadRequest for an id outside the vocabulary, or if none may come.
    """
    raw = logits.detach().to("cpu", torch.float32)
    if not math.isfinite(float(raw.sum())) and not bool(raw.isfinite().all()):
        raise NotFinite("the head produced logits that are not finite")
    scores = _penalised(_biased(raw, sampling), prompt, answer, sampling)
    scores = _masked(scores, sampling, eos_ids, allowed)
    if sampling.temperature == 0.0:
        chosen = int(scores.argmax())
    else:
        # Below the best in doubles: a temperature near zero then makes no NaN out of infinities.
        scores = (scores - scores.max()).double() / sampling.temperature
        chosen = _draw(scores.float(), sampling, uniform(sampling.seed, position))
    total = float(raw.logsumexp(0))
    top = tuple((int(token), float(raw[token]) - total) for token in _best(raw, sampling.logprobs))
    return Choice(chosen, float(raw[chosen]) - total, top)


def check_bias(sampling: Sampling, vocab: int) -> None:
    """Raise BadRequest for a `logit_bias` of an id outside a vocabulary of this size."""
    strange = [token for token, _ in sampling.logit_bias if token >= vocab]
    if strange:
        raise BadRequest(f"logit_bias names {strange[0]}, the vocabulary has {vocab} ids")


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that belongs to this seed and position, on every machine."""
    key = seed.to_bytes(8, "little") + position.to_bytes(8, "little")
    digest = hashlib.blake2b(key, digest_size=8, person=b"tessella draw").digest()
    # A double holds 53 bits: more would round up to 1 now and then.
    return (int.from_bytes(digest, "little") >> 11) / (1 << 53)


def _biased(raw: Tensor, sampling: Sampling) -> Tensor:
    """The logits, or a copy with what the request adds to some."""
    if not sampling.logit_bias:
        return raw
    check_bias(sampling, len(raw))
    ids, biases = zip(*sampling.logit_bias, strict=True)
    scores = raw.clone()
    scores[list(ids)] += torch.tensor(biases, dtype=torch.float32)
    return scores


def _masked(
    scores: Tensor, sampling: Sampling, eos_ids: Collection[int], allowed: Tensor | None
) -> Tensor:
    """The scores, or a copy where those that may not come are -inf."""
    if not sampling.ignore_eos and allowed is None:
        return scores
    if sampling.ignore_eos:
        # An end that the request asks for by its id is one all the same.
        barred = set(eos_ids).difference(sampling.stop_ids)
        scores = scores.clone()
        scores[[token for token in barred if 0 <= token < len(scores)]] = -math.inf
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    if float(scores.max()) == -math.inf:
        raise BadRequest("no token may come next: the request rules all of them out")
    return scores


def _penalised(
    raw: Tensor, prompt: Sequence[int], answer: Sequence[int], sampling: Sampling
) -> Tensor:
    """The logits, or a copy where a penalty applies."""
    scores = raw
    if sampling.repetition_penalty != 1.0:
        ids = _ids({*prompt, *answer}, len(raw))
        penalty = sampling.repetition_penalty
        seen = scores[ids]
        scores = scores.clone()
        # Kept finite, so that what is masked alone is not.
        changed = torch.where(seen > 0, seen / penalty, seen * penalty)
        scores[ids] = changed.clamp(_LOWEST, -_LOWEST)
    if (sampling.presence_penalty or sampling.frequency_penalty) and answer:
        counts = Counter(answer)
        ids = _ids(counts, len(raw))
        times = torch.tensor(list(counts.values()), dtype=torch.float32)
        scores = scores.clone()
        scores[ids] -= sampling.frequency_penalty * times + sampling.presence_penalty
    return scores


def _ids(tokens: Collection[int], vocab: int) -> Tensor:
    """Token ids of a peer as indices that are safe to use."""
    if strange := [token for token in tokens if not 0 <= token < vocab]:
        raise BadRequest(f"token id {strange[0]} is not in the vocabulary of {vocab}")
    return torch.tensor(list(tokens), dtype=torch.long)


def _draw(scores: Tensor, sampling: Sampling, chance: float) -> int:
    """One id from what the filters leave of these scores, of which the best is 0."""
    ids, kept = _filtered(scores, sampling)
    # Summed in doubles: in f32 the far end of a large vocabulary is rounded away.
    mass = kept.exp().cumsum(0, dtype=torch.float64)
    place = int(torch.searchsorted(mass, chance * float(mass[-1]), right=True))
    return int(ids[min(place, len(ids) - 1)])


def _filtered(scores: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Ids and scores that may be drawn."""
    if 0 < sampling.top_k < len(scores):
        ids = _best(scores, sampling.top_k)
    else:
        ids = torch.arange(len(scores))
    if sampling.top_p < 1.0:
        ids = _nucleus(scores, ids, sampling.top_p)
    kept = scores[ids]
    # A draw can fall on the very last one, which may not be one that is masked.
    possible = kept > -math.inf
    ids, kept = ids[possible], kept[possible]
    if sampling.min_p > 0.0:
        likely = kept >= math.log(sampling.min_p)
        ids, kept = ids[likely], kept[likely]
    return ids, kept


def _nucleus(scores: Tensor, ids: Tensor, top_p: float) -> Tensor:
    """The fewest of these ids, best first, whose probabilities among them reach `top_p`.

    The best of them has the score 0. Whatever lies below a depth comes after all that does not,
    so a sort of the near ones is the beginning of the sort of all.
    """
    among = scores[ids]
    wanted = top_p * float(among.exp().sum(dtype=torch.float64))
    for depth in DEPTHS:
        near = (among >= -depth).nonzero().flatten()
        best = near[among[near].argsort(descending=True, stable=True)]
        reached = among[best].exp().cumsum(0, dtype=torch.float64)
        if float(reached[-1]) >= wanted:
            break
    # The first id is always kept, and so is the one that crosses the line.
    keep = int((reached < wanted).sum()) + 1
    return ids[best[:keep]]


def _best(scores: Tensor, count: int) -> Tensor:
    """Indices of the `count` highest scores, best first, the lower index first among equals.

    torch promises no order among equals; the ids at the edge are sorted out here.
    """
    if count <= 0:
        return torch.empty(0, dtype=torch.long)
    if count < len(scores):
        edge = scores.topk(count).values[-1]
        places = (scores >= edge).nonzero().flatten()
    else:
        places = torch.arange(len(scores))
    order = scores[places].argsort(descending=True, stable=True)
    return places[order][:count]
