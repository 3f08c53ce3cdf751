"""What a proof is paid: who bears it out, what it is worth, and whose account that comes from.

Pure rules. A stage is borne out by a neighbour that saw the same rows: what stage k sent is what
stage k + 1 received. It is paid for the layers that its ticket assigns, times positions, as many
as it and such a neighbour agree on. The requester pays as far as its balance goes; the rest is
minted, within a limit a day, so that nobody is refused for being poor and nobody can print.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tessella.core.commitments import in_common
from tessella.core.errors import BadFrame
from tessella.core.proofs import MAX_BATCH, Claim
from tessella.core.tickets import ANONYMOUS
from tessella.core.tiers import MICRO

# A thousand layers times tokens are a credit: an answer of 100 tokens by 30 layers earns 3.
MICRO_PER_LAYER_TOKEN = MICRO // 1000
MINT_DAILY_CAP = 1000 * MICRO
# Of a worker's mint a day, what one requester may cause: a pair of one owner earns no more.
PAIR_SHARE = 5
# How long a proof waits for a neighbour's before it is paid by its own word, and how much of it.
# Nobody saw that work, so no requester pays for it: it is minted, and all of it in a day is what
# one requester may cause.
WAIT_SECONDS = 24 * 3600.0
UNATTESTED_SHARE = 2
SECONDS_A_DAY = 24 * 3600


class Became(StrEnum):
    """What became of a proof."""

    PAID = "paid"
    """It is settled, with `micro` of pay, which may be none."""
    ALREADY_PAID = "already_paid"
    """It was settled before, with `micro` of pay."""
    WAITING = "waiting"
    """It is kept until a neighbour's proof bears it out."""
    REFUSED = "refused"
    """It is not paid, for the reason in `code` and `text`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one proof."""

    became: Became
    micro: int = 0
    """Micro-credits."""
    code: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Attested:
    """What the neighbours make of a claim."""

    positions: int = 0
    is_settled: bool = True
    """False while a neighbour that could bear it out has not spoken."""
    is_refuted: bool = False
    """Whether every neighbour spoke, and none of them saw the same rows."""


def attest(claim: Claim, others: Mapping[int, Claim]) -> Attested:
    """How many positions of a claim are borne out by the claims of its chain that came in.

    `others` are those by their places. A chain of one stage has nobody to ask, and its word is
    taken; so is that of an end whose only neighbour is at odds with both of its own.
    """
    chain = {**others, claim.place: claim}
    neighbours = _neighbours(claim, claim.place)
    if not neighbours:
        return _by_its_word(claim)
    agreed = {place: _agreed(chain, claim.place, place) for place in neighbours}
    shared = [
        _positions(claim, upto, chain[place].proof.start) for place, upto in agreed.items() if upto
    ]
    wanted = _by_its_word(claim).positions
    if shared and (max(shared) >= wanted or None not in agreed.values()):
        return Attested(max(shared))
    if None in agreed.values():
        # Whoever comes first may say less than is so: nobody's pay depends on the order.
        return Attested(is_settled=False)
    if len(neighbours) > 1:
        return Attested(is_refuted=True)
    return _against_one(claim, chain, neighbours[0])


def borne_out(claim: Claim, others: Mapping[int, Claim]) -> int:
    """Positions that those neighbours which spoke saw as well, be it none."""
    chain = {**others, claim.place: claim}
    found = {place: _agreed(chain, claim.place, place) for place in _neighbours(claim, claim.place)}
    return max(
        (
            _positions(claim, upto, chain[place].proof.start)
            for place, upto in found.items()
            if upto
        ),
        default=0,
    )


def _against_one(claim: Claim, chain: Mapping[int, Claim], neighbour: int) -> Attested:
    """An end of the chain against the only stage that could bear it out."""
    beyond = [place for place in _neighbours(claim, neighbour) if place != claim.place]
    others = [_agreed(chain, neighbour, place) for place in beyond]
    if not others or any(others):
        return Attested(is_refuted=True)
    return Attested(is_settled=False) if None in others else _by_its_word(claim)


def _by_its_word(claim: Claim) -> Attested:
    return Attested(_positions(claim, claim.proof.outputs.stop, claim.proof.start))


def _neighbours(claim: Claim, place: int) -> list[int]:
    stages = range(len(claim.ticket.chain))
    return [each for each in (place - 1, place + 1) if each in stages]


def _agreed(chain: Mapping[int, Claim], one: int, other: int) -> int | None:
    """Positions that two neighbours agree on; None where one of them did not speak yet."""
    before, after = chain.get(min(one, other)), chain.get(max(one, other))
    if before is None or after is None:
        return None
    return in_common(before.proof.outputs, after.proof.inputs)


def _positions(claim: Claim, upto: int, start: int) -> int:
    return max(0, min(upto, claim.ticket.max_tokens) - max(start, claim.proof.start))


def worth(claim: Claim, positions: int) -> int:
    """Micro-credits for so many positions through the claim's layers."""
    return len(claim.proof.layers) * positions * MICRO_PER_LAYER_TOKEN


@dataclass(frozen=True, slots=True)
class Caps:
    """Micro-credits that may be minted in a UTC day."""

    worker: int = MINT_DAILY_CAP

    @property
    def pair(self) -> int:
        """For one worker, by the work for one requester that has a name."""
        return self.worker // PAIR_SHARE


@dataclass(frozen=True, slots=True)
class Minted:
    """What was minted today: for a worker, and for it by one requester."""

    worker: int = 0
    pair: int = 0


@dataclass(frozen=True, slots=True)
class Payment:
    """Where a worker's pay comes from, in micro-credits."""

    from_requester: int
    from_mint: int

    @property
    def total(self) -> int:
        """What the worker gets."""
        return self.from_requester + self.from_mint


def pay(claim: Claim, micro: int, balance: int, minted: Minted, caps: Caps) -> Payment:
    """The payment of a claim that is worth `micro`, from a requester that owns `balance`.

    Nobody earns by serving themselves. Beyond the caps nothing is minted.
    """
    requester = claim.ticket.requester
    if requester == claim.worker:
        return Payment(0, 0)
    named = requester != ANONYMOUS
    from_requester = min(micro, max(0, balance)) if named else 0
    room = caps.worker - minted.worker
    if named:
        room = min(room, caps.pair - minted.pair)
    return Payment(from_requester, min(micro - from_requester, max(0, room)))


def pay_unattested(claim: Claim, minted: Minted, caps: Caps) -> Payment:
    """The payment of a claim that nobody bears out: a share of its own word, out of the mint.

    `minted.pair` is what was minted so for its worker today. Nobody else's account is touched.
    """
    if claim.ticket.requester == claim.worker:
        return Payment(0, 0)
    micro = worth(claim, _by_its_word(claim).positions) // UNATTESTED_SHARE
    room = min(caps.worker - minted.worker, caps.pair - minted.pair)
    return Payment(0, min(micro, max(0, room)))


def day_of(moment: float) -> int:
    """The UTC day of a moment in seconds since 1970, by which the mint is capped."""
    return int(moment // SECONDS_A_DAY)


def encode_outcomes(outcomes: Iterable[Outcome]) -> bytes:
    """Outcomes as JSON."""
    return json.dumps([asdict(each) for each in outcomes], separators=(",", ":")).encode()


def decode_outcomes(data: bytes) -> list[Outcome]:
    """The inverse. Raises BadFrame for anything else."""
    try:
        plain: Any = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise BadFrame("outcomes that are not JSON") from exc
    if not isinstance(plain, list) or len(plain) > MAX_BATCH:
        raise BadFrame(f"outcomes that are not an array of at most {MAX_BATCH}")
    return [_outcome(each) for each in plain]


def _outcome(plain: Any) -> Outcome:  # noqa: ANN401 - whatever JSON has there
    try:
        outcome = Outcome(Became(plain["became"]), plain["micro"], plain["code"], plain["text"])
    except (KeyError, TypeError, ValueError):
        raise BadFrame("an outcome without a known word") from None
    kinds = (type(outcome.micro), type(outcome.code), type(outcome.text))
    if kinds != (int, str, str) or outcome.micro < 0:
        raise BadFrame("an outcome out of its types")
    return outcome
