"""Who bears out a proof: pure rules about the claims of the stages of one chain.

What came to a stage is borne out by the voucher in its proof, which the stage before signed. What
left it is as well, by the proof of the next stage, which brings its own voucher back. So nobody can
say that other rows came, or more; and it shows if somebody commits to other rows than it vouched
for, or to fewer.

    borne out     paid for as many positions as others bear out
    silent        one that could tell more, or less, has not spoken
    unattested    for a day nobody told
    refuted       it committed to other rows than it vouched for
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tessella.core.commitments import are_at_odds, in_common
from tessella.core.proofs import Claim

# How long a proof that others bear out waits for those that might say less: proofs come within
# seconds of the end of a session.
NEIGHBOUR_SECONDS = 900.0
# How long a proof waits for anybody's word.
WAIT_SECONDS = 24 * 3600.0


class Word(Enum):
    """What a chain makes of one of its claims."""

    BORNE_OUT = "borne out"
    SILENT = "silent"
    UNATTESTED = "unattested"
    REFUTED = "refuted"


@dataclass(frozen=True, slots=True)
class Attested:
    """What others make of a claim."""

    word: Word
    positions: int = 0
    """To be paid, where it is borne out, which may be none; by its own word, where nobody attests
    it."""


class Stages:
    """What the claims of one chain that came in make of each other."""

    def __init__(self, chain: Mapping[int, Claim]) -> None:
        """`chain` are all claims that came in, by their places; at least one."""
        self._claims = chain
        ticket = next(iter(chain.values())).ticket
        self._last = len(ticket.chain) - 1
        self.refuted = frozenset(place for place in chain if self._is_refuted(place))
        """Places of those who vouched for other rows than they commit to."""
        # By place, how many rows came from each of those in front who is believed, at most; none
        # where nobody proved anything there. Of each epoch for itself.
        self._came: dict[int, int | None] = {}
        came: dict[int, int] = {}
        for place, claim in sorted(chain.items()):
            epoch, stop = claim.proof.epoch, claim.proof.outputs.stop
            self._came[place] = before = came.get(epoch)
            most = ticket.max_tokens if before is None else before
            came[epoch] = most if place in self.refuted else min(most, stop)

    def _is_refuted(self, place: int) -> bool:
        """Whether a stage vouched for other rows than it commits to, or for more, or from elsewhere
        on: a proof is of all that its worker sent in an epoch."""
        sent, behind = self._claims[place].proof, self._behind(place)
        if behind is None or behind.proof.sender != sent.worker:
            return False
        received, start = behind.proof.inputs, behind.proof.start
        is_other = received.stop > sent.outputs.stop or start != sent.start
        return is_other or are_at_odds(sent.outputs, received)

    def _behind(self, place: int) -> Claim | None:
        """The claim of the next stage, if it came and is of the same epoch: a session may begin
        anew with other rows, and neither is wrong."""
        claim, behind = self._claims[place], self._claims.get(place + 1)
        is_of_it = behind is not None and behind.proof.epoch == claim.proof.epoch
        return behind if is_of_it else None

    def attest(self, place: int, waited: float = 0.0) -> Attested:
        """What becomes of the claim at a place that came in, `waited` seconds ago.

        A chain of one stage has nobody to ask, and its word is taken.
        """
        if place in self.refuted:
            return Attested(Word.REFUTED)
        stop = self._seen(place) if self._last else self._claims[place].proof.outputs.stop
        if stop is None or (self._is_waited_for(place, stop) and waited < NEIGHBOUR_SECONDS):
            if waited < WAIT_SECONDS:
                return Attested(Word.SILENT)
            return Attested(Word.UNATTESTED, self._paid(place, None))
        return Attested(Word.BORNE_OUT, self._paid(place, stop))

    def _is_waited_for(self, place: int, stop: int) -> bool:
        """Whether somebody is silent who might tell of less than a claim says, or of more than
        others do, where these tell of less."""
        is_less = stop < self._claims[place].proof.outputs.stop
        upto = self._last if is_less else min(place + 1, self._last)
        return any(each not in self._claims for each in range(upto + 1))

    def _seen(self, place: int) -> int | None:
        """Of how many rows that a stage sent others tell; None where nobody tells.

        What came to a stage is in the voucher of the one before, and no more was computed; if that
        is not the entry, one in front has to have proved something of that epoch, so that two who
        are one owner's do not make one up. Of the entry, and of a stage whose rows a spare sent,
        which brings no proof of its own, the others of its epoch tell: the next one what it took,
        and each one what passed those in front of it.
        """
        claim = self._claims[place]
        if place and claim.proof.sender == claim.ticket.chain[place - 1].peer_id:
            is_alone = place > 1 and self._came[place] is None
            return None if is_alone else claim.proof.outputs.stop
        stops = {
            at: each.proof.outputs.stop
            for at, each in self._claims.items()
            if at not in self.refuted and each.proof.epoch == claim.proof.epoch
        }
        # What one took passed all between, and no more than these had.
        told = [
            min(stop for among, stop in stops.items() if among == at or place < among < at)
            for at in stops
            if at not in (place, place + 1)
        ]
        behind = self._behind(place)
        if behind is not None:
            told.append(in_common(claim.proof.outputs, behind.proof.inputs))
        return max(told, default=0) or None

    def _paid(self, place: int, upto: int | None) -> int:
        """How many positions of a claim are paid, that end at `upto` at most: no more than came
        from each of those in front."""
        claim = self._claims[place]
        bounds = [upto, self._came[place], claim.proof.outputs.stop, claim.ticket.max_tokens]
        return max(0, min(each for each in bounds if each is not None) - claim.proof.start)
