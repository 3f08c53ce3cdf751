"""What a proof is paid: what it is worth, and whose account that comes from.

Pure rules. A stage is paid for the layers that its ticket assigns, times positions, as many as are
borne out. The requester pays as far as its balance goes; the rest is minted, within a limit a day,
so that nobody is refused for being poor and nobody can print.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tessella.core.errors import BadFrame
from tessella.core.proofs import MAX_BATCH, Claim
from tessella.core.tickets import ANONYMOUS
from tessella.core.tiers import MICRO

# A thousand layers times tokens are a credit: an answer of 100 tokens by 30 layers earns 3.
MICRO_PER_LAYER_TOKEN = MICRO // 1000
MINT_DAILY_CAP = 1000 * MICRO
# Of a worker's mint a day, what one requester may cause: a pair of one owner earns no more.
PAIR_SHARE = 5
# Of what nobody saw: how much of it is paid. No requester pays for it: it is minted, and all of it
# in a day is what one requester may cause, and a part of what others bore out in a day: who did
# nothing that anybody saw has no word to be paid by.
UNATTESTED_SHARE = 2
UNATTESTED_PART = 5
SECONDS_A_DAY = 24 * 3600


class Became(StrEnum):
    """What became of a proof."""

    PAID = "paid"
    """It is settled, with `micro` of pay, which may be none."""
    ALREADY_PAID = "already_paid"
    """It was settled before, with `micro` of pay."""
    WAITING = "waiting"
    """It is kept until others of its chain were heard."""
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


def pay_unattested(claim: Claim, micro: int, earned: int, minted: Minted, caps: Caps) -> Payment:
    """The payment of a claim of `micro` that nobody bears out: a share of it, out of the mint.

    `earned` is what its worker earned in a day, and `minted.pair` what was minted so for it today.
    Nobody else's account is touched.
    """
    if claim.ticket.requester == claim.worker:
        return Payment(0, 0)
    paid = minted.pair
    room = min(caps.worker - minted.worker, caps.pair - paid, earned // UNATTESTED_PART - paid)
    return Payment(0, min(micro // UNATTESTED_SHARE, max(0, room)))


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
