"""When work becomes a proof: before the answer that it is for leaves the node.

    witness = billing.witness(opened, ticket)       at the beginning of a session; None: unpaid
    with sessions.open(..., witness=witness) as stage:
        ...
        await billing.bill(stage)                   entry: before Done is said
                                                    tail: before the token with a reason leaves
                                                    middle: at End and Park
A stage that ends in any other way is billed as its memory is freed, by `run`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakSet

import trio

from tessella.core.errors import BadTicket, StoreUnavailable
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.messages import Open, Ticket
from tessella.core.shapes import DType
from tessella.core.tickets import place_of
from tessella.worker.proofs.book import HOLD_SECONDS, ProofBook
from tessella.worker.proofs.witness import NOBODY, Bill, Kept, Ticketing, Witness

if TYPE_CHECKING:
    from tessella.worker.stage import Stage

logger = logging.getLogger(__name__)

# Sessions that ended unbilled and wait for the disk: more than a node has at a time.
MAX_ABANDONED = 1024
# Seconds until one that could not be written is tried again.
RETRY_SECONDS = 1.0
Keep = Callable[[Ticketing], Kept | None]
"""What keeps rows of one session; None keeps none."""


def keep_nothing(_: Ticketing) -> Kept | None:
    """No rows are kept."""
    return None


class Billing:
    """Makes the witnesses of one node's sessions, and proofs of what they saw."""

    def __init__(
        self,
        book: ProofBook | None = None,
        *,
        identity: Identity | None = None,
        keep_outputs: Keep = keep_nothing,
        keep_ids: Keep = keep_nothing,
    ) -> None:
        """Without a book nothing is billed: there is no musivum that would pay. `identity` vouches
        for the rows that leave, to stages that are paid.

        `keep_ids` is asked for sessions of which this node is the entry.
        """
        self._book = book
        self._identity = identity
        self._keep_outputs, self._keep_ids = keep_outputs, keep_ids
        self._abandoned: deque[Bill] = deque(maxlen=MAX_ABANDONED)
        self._more = trio.Event()
        self._witnesses = WeakSet[Witness]()
        if book is not None:
            book.is_live = self._is_live

    def _is_live(self, request_id: bytes) -> bool:
        return any(each.owes_for(request_id) for each in self._witnesses)

    def witness(self, opened: Open, ticket: Ticket | None) -> Witness | None:
        """What is to see a session that begins; None where that is of use to nobody: to this node,
        if it is paid, and to the stage behind it, if there is one that may be.

        `ticket` is the one in `opened`, checked; None for one that says nothing here. Raises
        StoreUnavailable while no proof could be written: what is served then would be served for
        nothing.
        """
        is_last = opened.place + 1 == len(opened.chain)
        ticketing = self._ticketing(opened, ticket)
        if not opened.ticket or (is_last and not ticketing.is_paid):
            return None
        if self._book is not None and ticketing.is_paid:
            self._book.check_writable()
        witness = Witness(
            ticketing,
            identity=None if is_last else self._identity,
            kept_outputs=self._keep_outputs(ticketing) if ticket is not None else None,
            kept_ids=self._keep_ids(ticketing) if ticketing.is_paid and not opened.place else None,
            abandoned=self._abandon,
        )
        self._witnesses.add(witness)
        return witness

    def _ticketing(self, opened: Open, ticket: Ticket | None) -> Ticketing:
        place = opened.chain[opened.place]
        return Ticketing(
            ticket=opened.ticket,
            signature=opened.ticket_signature,
            request_id=ticket.request_id if ticket is not None else b"",
            layers=place.layers,
            dtype=DType(opened.dtype),
            epoch=opened.epoch,
            sender=opened.chain[opened.place - 1].peer_id if opened.place else NOBODY,
            is_paid=self._book is not None and _is_paid(ticket, place.peer_id),
        )

    async def bill(self, stage: Stage) -> None:
        """Have a proof of a stage's work on the disk when this returns; the second time nothing.

        Not to be called while a step of it runs. Cancelling waits for the disk. Raises
        StoreUnavailable, and nothing may be answered then; StoreLost, and the program ends.
        """
        witness = stage.witness
        if self._book is None or witness is None or not witness.owes:
            return
        with trio.CancelScope(shield=True):
            await self._book.serve(witness.bill())
        witness.is_billed = True

    def _abandon(self, bill: Bill) -> None:
        if len(self._abandoned) == MAX_ABANDONED:
            logger.error("work is done for nothing: %d bills wait for the disk", MAX_ABANDONED)
        self._abandoned.append(bill)
        self._more.set()

    async def run(self) -> None:
        """Bill, until cancelled, the stages that ended unbilled. Raises StoreLost."""
        while True:
            try:
                await self.bill_abandoned()
            except StoreUnavailable:
                await trio.sleep(RETRY_SECONDS)
            else:
                await self._more.wait()
                self._more = trio.Event()

    async def bill_abandoned(self) -> None:
        """Bill what ended unbilled so far.

        It is held for HOLD_SECONDS, since the session may begin anew, and for as long as that goes
        on, which is then billed in its place. Raises StoreUnavailable, and what is left is kept.
        """
        while self._book is not None and self._abandoned:
            with trio.CancelScope(shield=True):
                await self._book.serve(self._abandoned[0], hold=HOLD_SECONDS)
                self._abandoned.popleft()


def _is_paid(ticket: Ticket | None, worker: PeerId) -> bool:
    if ticket is None:
        return False
    try:
        place_of(ticket, worker)
    except BadTicket:
        return False
    return True
