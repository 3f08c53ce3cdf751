"""The ledger: proofs come in, are paid once, and anybody may look at what was paid.

It holds no state: all that it knows is in the store, and is read in the transaction that changes
it. So a crash loses what was not answered, and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Container, Sequence
from functools import partial
from typing import NoReturn, TypeVar

import trio
from sqlalchemy import Connection

from musivum.clocks import Clock
from musivum.ledger import accounts, history, sweeping
from musivum.ledger.accounts import MAX_ACCOUNTS, Credits
from musivum.ledger.checking import Check
from musivum.ledger.draft import Draft, Movement
from musivum.ledger.history import Inclusion, SignedHead
from musivum.ledger.kept import Bill, find_proof
from musivum.ledger.settling import Settled, refusal, settle, settle_due
from musivum.ledger.together import Together
from musivum.store.errands import Transacts
from tessella.core.errors import BadRequest, Refused, RemoteError, StoreUnavailable
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.ledger import MAX_PAGE_ENTRIES, Entry, Line
from tessella.core.proofs import MAX_BATCH, SignedProof, read_claim
from tessella.core.settlement import Caps, Outcome

logger = logging.getLogger(__name__)

T = TypeVar("T")

SWEEP_SECONDS = 600.0
# Proofs that are verified before others may go on: three milliseconds of arithmetic.
READ_AT_ONCE = 8
CAPS = Caps()


class Ledger:
    """The ledger of one musivum. It holds nothing that is to be closed; the store is the caller's.

    Every method raises StoreUnavailable where nothing was written and a later try may work, and
    StoreLost where the program ends. `clock` gives seconds since 1970. `issuers` are the musivums
    whose tickets are paid here; by default we are the only one.
    """

    def __init__(
        self,
        identity: Identity,
        store: Transacts,
        clock: Clock,
        caps: Caps = CAPS,
        issuers: Callable[[], Container[PeerId]] | None = None,
    ) -> None:
        self._identity = identity
        self._store = store
        self._clock = clock
        self._caps = caps
        self._issuers = issuers or (lambda: (identity.peer_id,))
        self._together = Together(self._settle)
        self.checking = trio.Lock()
        """Held while a check is under way: whoever takes entries away waits for it."""
        self.on_settled: Callable[[Settled], None] = _ignored
        """Called with what a transaction came to, after it is written; must not raise."""

    @property
    def origin(self) -> PeerId:
        """Whose ledger it is."""
        return self._identity.peer_id

    async def settle(self, proofs: Sequence[SignedProof]) -> list[Outcome]:
        """What became of each proof, in order, once that is on the disk.

        A proof is paid once, however often and in whatever company it comes. One that waits for a
        neighbour's is paid when that comes, and its worker learns it by asking again. Raises
        BadRequest for more than MAX_BATCH. Cancelling: they may be settled all the same.
        """
        if len(proofs) > MAX_BATCH:
            raise BadRequest(f"{len(proofs)} proofs at once, over {MAX_BATCH}")
        read = [each async for each in self._read(proofs)]
        bills = [each for each in read if isinstance(each, Bill)]
        settled = iter(await self._together.settle(bills) if bills else ())
        return [next(settled) if isinstance(each, Bill) else each for each in read]

    async def _read(self, proofs: Sequence[SignedProof]) -> AsyncIterator[Bill | Outcome]:
        for place, signed in enumerate(proofs):
            if place % READ_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            try:
                yield Bill(read_claim(signed, self._issuers(), self._clock()), signed)
            except (RemoteError, Refused) as exc:
                yield refusal(exc)

    async def _settle(self, bills: Sequence[Bill]) -> Sequence[Outcome]:
        now = self._clock()

        def work(connection: Connection) -> Settled:
            return settle(connection, self.origin, bills, self._caps, now)

        return (await self._told(work)).outcomes

    async def _told(self, work: Callable[[Connection], Settled]) -> Settled:
        """Settle, and tell what came of it to those who follow it."""
        settled = await self._store.transact(work)
        self.on_settled(settled)
        return settled

    async def proof(self, request_id: bytes, worker: PeerId, issuer: PeerId) -> SignedProof | None:
        """A proof that was brought, while its bytes are kept: a day after its ticket expired."""
        return await self._store.transact(
            partial(find_proof, request_id=request_id, worker=worker, issuer=issuer)
        )

    async def balance(self, account: str) -> int:
        """Micro-credits of an account; 0 for one that is not known."""
        return await self._store.transact(partial(accounts.read_balance, account=account))

    async def credits(self, account: str) -> Credits:
        """All that is known of an account; zeros for one that is not known."""
        now = self._clock()
        return await self._store.transact(partial(accounts.read_credits, account=account, now=now))

    async def accounts(self, limit: int = MAX_ACCOUNTS) -> list[Credits]:
        """The accounts that own most, first the richest; at most MAX_ACCOUNTS."""
        now = self._clock()
        return await self._store.transact(partial(accounts.read_accounts, limit=limit, now=now))

    async def size(self, origin: PeerId | None = None) -> int:
        """How many entries of a musivum's ledger are here; of ours by default."""
        return await self._store.transact(partial(history.size_of, origin=origin or self.origin))

    async def keepers(self) -> frozenset[PeerId]:
        """Who kept this ledger's database, before us or we ourselves: a standby has its own key,
        and pays what its leader promised."""
        return await self._store.transact(history.read_keepers)

    async def page(
        self, origin: PeerId | None = None, since: int = 0, limit: int = MAX_PAGE_ENTRIES
    ) -> list[bytes]:
        """Payloads of a musivum's entries from `since` on, at most MAX_PAGE_ENTRIES; may be none.

        Raises BadRequest for numbers below 0.
        """
        return await self._store.transact(
            partial(history.read_page, origin=origin or self.origin, since=since, limit=limit)
        )

    async def head(self, least: int = 0) -> SignedHead:
        """The head of our ledger, of at least so many entries.

        At most HEAD_SECONDS old and HEAD_ENTRIES behind. For one size there is one head, forever.
        Raises UnknownEntry where there are fewer.
        """
        now = self._clock()
        return await self._store.transact(
            partial(history.read_head, identity=self._identity, now=now, least=least)
        )

    async def inclusion(self, index: int, size: int | None = None) -> Inclusion:
        """An entry of ours, and what joins it to the root of our first `size` entries, or of all.

        Raises UnknownEntry for an entry that is not among them, BadRequest for a size beyond ours.
        """
        return await self._store.transact(
            partial(history.read_inclusion, origin=self.origin, index=index, size=size)
        )

    async def consistency(self, old: int, new: int | None = None) -> tuple[bytes, ...]:
        """What shows that our first `new` entries, or all, begin with our first `old` ones.

        Raises BadRequest for sizes that do not follow each other, or beyond ours.
        """
        return await self._store.transact(
            partial(history.read_consistency, origin=self.origin, old=old, new=new)
        )

    async def post(
        self,
        kind: str,
        lines: Sequence[Line],
        reason: str,
        worker: str = "",
        request_id: bytes = b"",
        issuer: str = "",
    ) -> Entry:
        """Add an entry to our ledger: a slash, an appeal, a reversal, an epoch.

        Raises BadRequest for lines that do not sum to 0, or take from an account what it has not;
        LocalError for other breaks of the rules of entries.
        """
        movement = Movement(kind, lines, reason, issuer, request_id, worker)
        return await self.write(lambda draft: draft.append(movement))

    async def write(self, work: Callable[[Draft], T]) -> T:
        """Let somebody add entries as balances are at that moment, and what else belongs to it.

        `work` runs in the database's thread, in one transaction with all that it adds to the draft
        and does on `draft.connection`. What it raises undoes it.
        """
        now = self._clock()

        def drafted(connection: Connection) -> T:
            draft = Draft(connection, self.origin, now)
            found = work(draft)
            draft.write()
            return found

        return await self._store.transact(drafted)

    async def sweep(self, now: float) -> None:
        """Look again at proofs that waited for long; let go of what is old."""
        while await self._settle_due(now):
            pass
        while await self._store.transact(partial(sweeping.drop_bytes, now=now)):
            pass
        await self._store.transact(partial(sweeping.drop_counts, now=now))

    async def _settle_due(self, now: float) -> bool:
        is_any = False

        def work(connection: Connection) -> Settled:
            nonlocal is_any
            due = sweeping.read_due(connection, now)
            is_any = bool(due)
            return settle_due(connection, self.origin, due, self._caps, now)

        await self._told(work)
        return is_any

    async def check(self, *, whole: bool = False) -> int:
        """Compare balances with entries; returns how many entries were read.

        Those since the last check are walked, or all of them if `whole`. Raises StoreLost that
        names the first entry or the account that is not what was written.
        """
        async with self.checking:
            check = Check(is_whole=whole)
            while not await self._store.transact(check.step):
                pass
            return check.entries


def _ignored(_: object) -> None:
    return None


async def run_ledger(ledger: Ledger, clock: Clock) -> NoReturn:
    """Check and sweep at once and then every SWEEP_SECONDS, until cancelled. Raises StoreLost."""
    while True:
        try:
            await ledger.check()
            await ledger.sweep(clock())
        except StoreUnavailable as exc:
            logger.warning("the ledger is not swept: %s", exc)
        await trio.sleep(SWEEP_SECONDS)
