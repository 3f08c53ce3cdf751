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

from collections.abc import Iterator, Mapping
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
    fault: int | None
    """The place of the one that an audit told against."""

    def other(self, place: int) -> int:
        return self.after if place == self.before else self.before


def attest(place: int, chain: Mapping[int, Heard], waited: float = 0.0) -> Attested:
    """What becomes of the claim at a place, `waited` seconds after it came.

    `chain` are the claims that came in by their places, itself among them: all of those before it,
    which bound how much it can have seen, and those as far as two places behind it, which tell
    whether a neighbour is to be believed. A chain of one stage has nobody to ask, and its word is
    taken; so is that of a stage whose neighbour lost their dispute, if its own rows were seen, or
    one before it bounds what it says.
    """
    claim = chain[place].claim
    mine = [_edge(chain, before) for before in _edges_of(claim, place)]
    if not mine:
        return Attested(Word.BORNE_OUT, _by_its_word(chain, place))
    if _is_at_fault(chain, place):
        return Attested(Word.REFUTED, is_contradicted=True)
    spoke = [edge for edge in mine if edge is not None]
    odds = [edge for edge in spoke if edge.is_at_odds]
    open_edges = [edge for edge in odds if not _is_at_fault(chain, edge.other(place))]
    is_silent = len(spoke) < len(mine) or any(each not in chain for each in range(place))
    if open_edges:
        unseen = [edge.before for edge in open_edges if chain[edge.before].ruling is None]
        found = Attested(Word.DISPUTED, asks=tuple(unseen))
    elif is_silent and waited < NEIGHBOUR_SECONDS:
        found = Attested(Word.SILENT)
    else:
        found = _of_what_was_said(place, chain, spoke, is_silent=is_silent)
    if found.word in (Word.DISPUTED, Word.SILENT) and waited >= WAIT_SECONDS:
        found = Attested(Word.UNATTESTED, _by_its_word(chain, place))
    return replace(found, is_contradicted=bool(odds))


def _of_what_was_said(
    place: int, chain: Mapping[int, Heard], spoke: list[_Edge], *, is_silent: bool
) -> Attested:
    """Of a claim with which nobody is at odds who is to be believed."""
    seen = max((_positions(chain, place, edge) for edge in spoke), default=0)
    is_against = any(edge.is_at_odds for edge in spoke)
    if seen or not (is_against or is_silent):
        return Attested(Word.BORNE_OUT, seen)
    is_bounded = chain[place].ruling is Ruling.RIGHT or any(
        each in chain and not _is_at_fault(chain, each) for each in range(place)
    )
    if is_against and is_bounded:
        # An audit told for it; of how much it says, that audit, or one before it.
        return Attested(Word.BORNE_OUT, min(_by_its_word(chain, place), AUDITED_POSITIONS))
    return Attested(Word.SILENT)


def _edges_of(claim: Claim, place: int) -> Iterator[int]:
    """Edges of a stage, by the place before each."""
    last = len(claim.ticket.chain) - 1
    yield from (before for before in (place - 1, place) if 0 <= before < last)


def _edge(chain: Mapping[int, Heard], before: int) -> _Edge | None:
    """What is said of one edge; None where one of its two has not spoken."""
    one, other = chain.get(before), chain.get(before + 1)
    if one is None or other is None:
        return None
    sent, received = one.claim.proof.outputs, other.claim.proof.inputs
    is_at_odds = are_at_odds(sent, received)
    fault = None
    if is_at_odds and one.ruling is not None:
        fault = before + 1 if one.ruling is Ruling.RIGHT else before
    return _Edge(before, before + 1, in_common(sent, received), is_at_odds, fault)


def _is_at_fault(chain: Mapping[int, Heard], place: int) -> bool:
    """Whether an audit told against a stage, on any of its edges: then nobody believes it."""
    if place not in chain:
        return False
    edges = (_edge(chain, before) for before in _edges_of(chain[place].claim, place))
    return any(edge is not None and edge.fault == place for edge in edges)


def _positions(chain: Mapping[int, Heard], place: int, edge: _Edge) -> int:
    """Positions of a claim that its neighbour on an edge saw as well."""
    if edge.is_at_odds:
        return 0
    start = chain[edge.other(place)].claim.proof.start
    return _paid(chain, place, edge.agreed, start)


def _by_its_word(chain: Mapping[int, Heard], place: int) -> int:
    proof = chain[place].claim.proof
    return _paid(chain, place, proof.outputs.stop, proof.start)


def _paid(chain: Mapping[int, Heard], place: int, upto: int, start: int) -> int:
    claim = chain[place].claim
    # Whatever it says, no more came than those before it sent.
    sent = (chain[each].claim.proof.outputs.stop for each in range(place) if each in chain)
    stop = min((upto, claim.ticket.max_tokens, *sent))
    return max(0, stop - max(start, claim.proof.start))
