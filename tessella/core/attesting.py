"""Who bears out a proof: pure rules about the claims of the stages of one chain.

What stage k sent is what stage k + 1 received, so that each edge of a chain has two who speak of
it, and no stage has seen more rows than those before it sent. By their commits alone nobody can
tell which of two that contradict each other lies, and each could: so both wait, until an audit has
looked at the rows that the one before says it sent.

    borne out     paid for as many positions as it and a neighbour agree on
    silent        a neighbour, or one before, that could bear it out or not has not spoken
    disputed      it and a neighbour committed to other rows; an audit of the one before tells
    unattested    for a day nobody spoke, or no audit could tell
    refuted       an audit told against it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum

from tessella.core.commitments import are_at_odds, in_common
from tessella.core.proofs import Claim

# How long a proof that one neighbour bears out waits for the word of the other: proofs come within
# seconds of the end of a session, and what is drawn then can be audited, as rows are kept an hour.
NEIGHBOUR_SECONDS = 900.0
# Of what a stage sent so many positions are recomputed, and so many are paid by an audit alone.
AUDITED_POSITIONS = 4096
# How long a proof waits for anybody's word.
WAIT_SECONDS = 24 * 3600.0


class Ruling(StrEnum):
    """What audits found of the rows that a stage says it sent."""

    RIGHT = "right"
    """They were shown, and are what its layers make of its inputs."""
    WRONG = "wrong"
    """They are not, or whoever has to show them did not."""


class Word(Enum):
    """What a chain makes of one of its claims."""

    BORNE_OUT = "borne out"
    SILENT = "silent"
    DISPUTED = "disputed"
    UNATTESTED = "unattested"
    REFUTED = "refuted"


@dataclass(frozen=True, slots=True)
class Heard:
    """A claim that came in, and what audits found of the rows it sent, if they looked."""

    claim: Claim
    ruling: Ruling | None = None


@dataclass(frozen=True, slots=True)
class Attested:
    """What the neighbours make of a claim."""

    word: Word
    positions: int = 0
    """To be paid, where it is borne out, which may be none; by its own word, where nobody attests
    it."""
    asks: tuple[int, ...] = ()
    """Places whose rows an audit has to look at, where it is disputed."""
    is_contradicted: bool = False
    """Whether a neighbour says that other rows went between them, whoever is right."""


@dataclass(frozen=True, slots=True)
class _Edge:
    """What two neighbours that spoke say of the rows between them."""

    before: int
    after: int
    agreed: int
    is_at_odds: bool
    is_more: bool
    """Whether more rows came than were sent: one of the two counts wrongly, and none is at odds."""
    fault: int | None
    """The place of the one that an audit told against."""

    @property
    def places(self) -> tuple[int, int]:
        return self.before, self.after


class Stages:
    """What the claims of one chain that came in make of each other."""

    def __init__(self, chain: Mapping[int, Heard]) -> None:
        """`chain` are all claims that came in, by their places; at least one."""
        self._heard = chain
        length = len(next(iter(chain.values())).claim.ticket.chain)
        self._last = length - 1
        pairs = (before for before in range(length - 1) if before in chain and before + 1 in chain)
        self._edges = {before: _edge(chain[before], chain[before + 1], before) for before in pairs}
        faults = (edge.fault for edge in self._edges.values())
        self._at_fault = {place for place in faults if place is not None}
        self._open = [edge for edge in self._edges.values() if self._is_open(edge)]
        doubted = {place for edge in self._open for place in edge.places}
        # Who spoke, and whom nobody contradicts who is not known to be wrong.
        self._believed = chain.keys() - self._at_fault - doubted

    def _is_open(self, edge: _Edge) -> bool:
        """Whether its two contradict each other, and nothing tells yet which one is right."""
        return (edge.is_at_odds or edge.is_more) and self._at_fault.isdisjoint(edge.places)

    def miscounts(self) -> list[tuple[int, int]]:
        """Places of two of whom one counts wrongly: the one behind says that more rows came than
        the one before says it sent. No rows tell which one."""
        return [edge.places for edge in self._open if not edge.is_at_odds]

    def attest(self, place: int, waited: float = 0.0) -> Attested:
        """What becomes of the claim at a place that came in, `waited` seconds ago.

        A chain of one stage has nobody to ask, and its word is taken; so is that of a stage whose
        neighbour lost a dispute, if its own rows were seen, or one before it bounds what it says.
        """
        if place in self._at_fault:
            return Attested(Word.REFUTED, is_contradicted=True)
        mine = self._edges_of(place)
        found = self._found(place, mine, is_patient=waited < NEIGHBOUR_SECONDS)
        if found.word in (Word.DISPUTED, Word.SILENT) and waited >= WAIT_SECONDS:
            found = self._at_last(place, mine)
        return replace(found, is_contradicted=any(edge.is_at_odds for edge in mine))

    def _at_last(self, place: int, mine: list[_Edge]) -> Attested:
        """What is left to say of a claim that waited long enough.

        What hangs on others' dispute is paid as far as all of them say that rows went.
        """
        seen = self._seen_by(place, mine)
        is_in_dispute = any(edge.is_at_odds for edge in mine)
        if seen and not is_in_dispute and not self.miscounts():
            start = self._heard[place].claim.proof.start
            stops = (
                each.claim.proof.outputs.stop for at, each in self._heard.items() if at < place
            )
            return Attested(Word.BORNE_OUT, max(0, min((seen + start, *stops)) - start))
        return Attested(Word.UNATTESTED, self._by_its_word(place))

    def _edges_of(self, place: int) -> list[_Edge]:
        return [self._edges[each] for each in (place - 1, place) if each in self._edges]

    def _found(self, place: int, mine: list[_Edge], *, is_patient: bool) -> Attested:
        if not self._last:
            return Attested(Word.BORNE_OUT, self._by_its_word(place))
        odds = [edge for edge in mine if edge in self._open and edge.is_at_odds]
        if odds:
            return self._disputed(edge.before for edge in odds)
        seen, wanted = self._seen_by(place, mine), self._by_its_word(place)
        if place + 1 in self._at_fault and seen < wanted:
            # Whoever should bear it out is not believed: its own rows have to.
            return self._by_its_rows(place, seen)
        if any(edge.is_at_odds for edge in mine) and not seen:
            # Of how much it says, one before it tells, who is believed.
            is_bounded = any(each < place for each in self._believed)
            word = Word.BORNE_OUT if is_bounded else Word.SILENT
            return Attested(word, min(wanted, AUDITED_POSITIONS) if is_bounded else 0)
        if self._is_in_doubt(place, seen < wanted):
            return Attested(Word.SILENT)
        heard_of = range(min(place + 1, self._last) + 1)
        is_silent = any(each not in self._heard for each in heard_of)
        if is_silent and (is_patient or not seen):
            return Attested(Word.SILENT)
        return Attested(Word.BORNE_OUT, seen)

    def _by_its_rows(self, place: int, seen: int) -> Attested:
        match self._heard[place].ruling:
            case Ruling.RIGHT:
                wanted = min(self._by_its_word(place), AUDITED_POSITIONS)
                return Attested(Word.BORNE_OUT, max(seen, wanted))
            case Ruling.WRONG:
                return Attested(Word.SILENT)
        return self._disputed([place])

    def _disputed(self, places: Iterable[int]) -> Attested:
        unseen = [place for place in places if self._heard[place].ruling is None]
        return Attested(Word.DISPUTED, asks=tuple(unseen))

    def _is_in_doubt(self, place: int, is_short: bool) -> bool:
        """Whether what a stage says hangs on two that contradict each other.

        What came to it did, if they stand before it, or it is one of them; and where it is not
        borne out for all that it says, so does what its neighbour behind it says.
        """
        is_behind = any(edge.after <= place for edge in self._open)
        return is_behind or (is_short and any(edge.before == place + 1 for edge in self._open))

    def _seen_by(self, place: int, mine: list[_Edge]) -> int:
        """Positions of a claim that a neighbour saw as well: the one that saw most."""
        return max((self._seen(place, edge) for edge in mine), default=0)

    def _seen(self, place: int, edge: _Edge) -> int:
        """Positions of a claim that its neighbour on an edge saw as well."""
        if edge.is_at_odds:
            return 0
        other = edge.after if place == edge.before else edge.before
        return self._paid(place, edge.agreed, self._heard[other].claim.proof.start)

    def _by_its_word(self, place: int) -> int:
        proof = self._heard[place].claim.proof
        return self._paid(place, proof.outputs.stop, proof.start)

    def _paid(self, place: int, upto: int, start: int) -> int:
        claim = self._heard[place].claim
        # Whatever it says, no more came than those before it sent.
        sent = (
            self._heard[each].claim.proof.outputs.stop for each in self._believed if each < place
        )
        stop = min((upto, claim.ticket.max_tokens, *sent))
        return max(0, stop - max(start, claim.proof.start))


def _edge(one: Heard, other: Heard, before: int) -> _Edge:
    sent, received = one.claim.proof.outputs, other.claim.proof.inputs
    is_at_odds = are_at_odds(sent, received)
    fault = None
    if is_at_odds and one.ruling is not None:
        fault = before + 1 if one.ruling is Ruling.RIGHT else before
    is_more = not is_at_odds and received.stop > sent.stop
    return _Edge(before, before + 1, in_common(sent, received), is_at_odds, is_more, fault)
