"""What a culprit loses, and how it gets it back.

    bar       let in nowhere for days, and out of every list at once
    fine      from its balance to `slashed`, as far as it has it: an entry `slash`
    appeal    the fine back: an entry `appeal`; the bar and the record are gone

A bar that audits lead to holds from that moment, even where the store cannot write. Its fine is
owed until it is taken, in the transaction that keeps that it was: whatever ends the process, it is
taken once.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import trio

from musivum.audits.epochs import Writes
from musivum.audits.keeping import write_standings
from musivum.audits.standing import BAR_DAYS, SECONDS_A_DAY, Standing
from musivum.audits.standings import Standings
from musivum.clocks import Clock
from musivum.ledger import Draft, Movement
from musivum.ledger.accounts import read_credits
from tessella.core.audits import fine
from tessella.core.errors import BadRequest, BadSignature, Refused, StoreUnavailable
from tessella.core.identity import public_key_of
from tessella.core.ids import PeerId
from tessella.core.ledger import MAX_REASON, SLASHED, Line
from tessella.core.text import one_line

logger = logging.getLogger(__name__)

MAX_DAYS = 3650.0
Remove = Callable[[PeerId], Awaitable[object]]
"""Takes a node out of every list; may raise StoreUnavailable after it did."""


@dataclass(frozen=True, slots=True)
class Slashed:
    """What was done to an account, or taken back."""

    micro: int
    """Micro-credits by which it moved: below 0 for a fine, above for one given back."""
    balance: int
    """What it has after that."""
    until: float | None
    """Until when it is let in nowhere, in seconds since 1970; None where it may come."""
    sequence: int
    """The ledger's entry that says so."""


class Penalties:
    """Bars and fines. `remove` is called for whoever is barred."""

    def __init__(self, ledger: Writes, standings: Standings, clock: Clock, remove: Remove) -> None:
        self._ledger = ledger
        self._standings = standings
        self._clock = clock
        self._remove = remove
        # What is read of a standing before a transaction is what it is when it has been written.
        self._turn = trio.Lock()

    async def punish(self, peer_id: PeerId, reason: str, hop_micro: int) -> bool:
        """Bar whom audits found guilty of a hop of that worth, and fine it as soon as that can be
        written; False for who is barred already."""
        if self._standings.is_barred(peer_id):
            return False
        now, told = self._clock(), _told(reason)
        until = now + BAR_DAYS * SECONDS_A_DAY
        # Of a hop that was worth nothing as well: only of who owes is taken what a day brought.
        owed = max(1, fine(hop_micro, 0))
        self._standings.put(self._standings.of(peer_id).barred(told, until, now, owed))
        logger.warning("slashed: %s: %s", peer_id, told)
        await self._removed(peer_id)
        try:
            await self.collect(peer_id)
        except StoreUnavailable as exc:
            logger.warning("the fine of %s waits: %s", peer_id, exc)
        return True

    async def collect(self, peer_id: PeerId) -> None:
        """Take what a peer owes and what a day brought it, as far as it has that; of one that owes
        nothing, nothing.

        Raises StoreUnavailable, and then it owes it still.
        """
        async with self._turn:
            standing = self._standings.of(peer_id)
            if not standing.owed:
                return  # somebody else took it while we waited for our turn

            def work(draft: Draft) -> Standing:
                lost = fine(0, read_credits(draft.connection, peer_id, draft.now).earned_day)
                after, _ = _taken(draft, standing, standing.owed + lost)
                return after

            after = await self._ledger.write(work)
            known = self._standings.of(peer_id)
            self._standings.put(replace(known, owed=after.owed, fined=after.fined))

    async def collect_all(self) -> None:
        """Take what could not be taken before. Raises StoreUnavailable."""
        for peer_id in self._standings.owing():
            await self.collect(peer_id)

    async def slash(
        self, peer_id: PeerId, reason: str, micro: int | None = None, days: float = BAR_DAYS
    ) -> Slashed:
        """Bar a peer for so many days and take so many micro-credits, or what a day brought it.

        0 days take the fine alone, and leave a bar as it is. Raises BadRequest for what is no peer,
        no sum or no number of days, and StoreUnavailable where nothing was done.
        """
        if not 0 <= days <= MAX_DAYS:
            raise BadRequest(f"days = {days:g}: has to be 0 to {MAX_DAYS:g}")
        if micro is not None and micro < 0:
            raise BadRequest(f"a fine of {micro}")
        _check_peer(peer_id)
        async with self._turn:
            now = self._clock()
            until = now + days * SECONDS_A_DAY if days else 0.0
            barred = self._standings.of(peer_id).barred(_told(reason), until, now)

            def work(draft: Draft) -> tuple[Standing, Slashed]:
                if micro is None:
                    lost = read_credits(draft.connection, peer_id, draft.now).earned_day
                    return _taken(draft, barred, barred.owed + fine(0, lost))
                return _taken(draft, barred, barred.owed + micro)

            after, slashed = await self._ledger.write(work)
            self._standings.put(replace(after, hops=self._standings.of(peer_id).hops))
        logger.warning("slashed by the operator: %s: %s", peer_id, barred.barred_for)
        if days:
            await self._removed(peer_id)
        return slashed

    async def _removed(self, peer_id: PeerId) -> None:
        try:
            await self._remove(peer_id)
        except StoreUnavailable as exc:
            logger.warning("the row of %s stays in the store: %s", peer_id, exc)

    async def appeal(self, peer_id: PeerId, reason: str = "") -> Slashed:
        """Take back all that is held against a peer.

        Raises Refused where there is nothing, and StoreUnavailable where nothing was done.
        """
        async with self._turn:
            standing, now = self._standings.of(peer_id), self._clock()
            if not standing.is_marked(now):
                raise Refused(f"nothing is held against {peer_id[:64]}")
            after = standing.appealed(now)

            def work(draft: Draft) -> Slashed:
                given = max(0, min(standing.fined, draft.balances.balance(SLASHED)))
                entry = draft.append(Movement("appeal", _lines(peer_id, given), _told(reason)))
                write_standings(draft.connection, {peer_id: after})
                return Slashed(given, draft.balances.balance(peer_id), None, entry.sequence)

            back = await self._ledger.write(work)
            # What was found meanwhile is gone with the rest; hops are not.
            self._standings.put(replace(after, hops=self._standings.of(peer_id).hops))
        logger.warning("appeal granted: %s", peer_id)
        return back


def _taken(draft: Draft, standing: Standing, owed: int) -> tuple[Standing, Slashed]:
    """Take what is owed as far as it is there, and keep that; the rest is let go."""
    peer_id = standing.peer_id
    taken = max(0, min(owed, draft.balances.balance(peer_id)))
    entry = draft.append(Movement("slash", _lines(peer_id, -taken), standing.barred_for))
    after = standing.collected(taken)
    write_standings(draft.connection, {peer_id: after})
    until = after.barred_until if after.is_barred(draft.now) else None
    return after, Slashed(-taken, draft.balances.balance(peer_id), until, entry.sequence)


def _lines(peer_id: PeerId, micro: int) -> tuple[Line, ...]:
    """Between a peer and where fines are."""
    return (Line(peer_id, micro), Line(SLASHED, -micro)) if micro else ()


def _check_peer(peer_id: PeerId) -> None:
    try:
        public_key_of(peer_id)
    except BadSignature:
        raise BadRequest(f"{peer_id[:64]!r} is no peer") from None


def _told(reason: str) -> str:
    """A reason as an entry takes it."""
    return one_line(reason).encode(errors="replace")[:MAX_REASON].decode(errors="ignore")
