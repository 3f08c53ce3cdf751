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

import trio

from tessella.core.errors import BadTicket, StoreUnavailable
from tessella.core.ids import PeerId
from tessella.core.messages import Open, Ticket
from tessella.core.shapes import DType
from tessella.core.tickets import place_of
from tessella.worker.proofs.book import ProofBook
from tessella.worker.proofs.witness import Bill, Kept, Ticketing, Witness

if TYPE_CHECKING:
    from tessella.worker.stage import Stage

logger = logging.getLogger(__name__)

# Sessions that ended unbilled and wait for the disk: more than a node has at a time.
MAX_ABANDONED = 1024
# Seconds until one that could not be written is tried again.
RETRY_SECONDS = 1.0
# For how long the bill of a session that was given up waits for the same one to begin anew, over
# other nodes or without the KV of an earlier request: a ticket is paid once.
HOLD_SECONDS = 15.0

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
        keep_outputs: Keep = keep_nothing,
        keep_ids: Keep = keep_nothing,
    ) -> None:
        """Without a book nothing is billed: there is no musivum that would pay.

        `keep_ids` is asked for sessions of which this node is the entry.
        """
        self._book = book
        self._keep_outputs, self._keep_ids = keep_outputs, keep_ids
        self._abandoned: deque[Bill] = deque(maxlen=MAX_ABANDONED)
        self._more = trio.Event()

    def witness(self, opened: Open, ticket: Ticket | None) -> Witness | None:
        """What is to see a session that begins; None for one that nobody pays this node for.

        `ticket` is the one in `opened`, checked. Raises StoreUnavailable while no proof could be
        written: what is served then would be served for nothing.
        """
        if self._book is None or ticket is None:
            return None
        place = opened.chain[opened.place]
        if not _is_paid(ticket, place.peer_id):
            return None
        self._book.check_writable()
        ticketing = Ticketing(
            ticket=opened.ticket,
            signature=opened.ticket_signature,
            request_id=ticket.request_id,
            layers=place.layers,
            dtype=DType(opened.dtype),
        )
        return Witness(
            ticketing,
            kept_outputs=self._keep_outputs(ticketing),
            kept_ids=self._keep_ids(ticketing) if opened.place == 0 else None,
            abandoned=self._abandon,
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

        It is held for HOLD_SECONDS, since the session may begin anew, which is then billed in its
        place. Raises StoreUnavailable, and what is left is kept.
        """
        while self._book is not None and self._abandoned:
            with trio.CancelScope(shield=True):
                await self._book.serve(self._abandoned[0], hold=HOLD_SECONDS)
                self._abandoned.popleft()


def _is_paid(ticket: Ticket, worker: PeerId) -> bool:
    try:
        place_of(ticket, worker)
    except BadTicket:
        return False
    return True
