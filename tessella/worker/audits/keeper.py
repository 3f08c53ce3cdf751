"""Shows what this node kept to whom musivum ordered it for, and to nobody else.

auditor   SignedOrder
keeper    KeptRows until all positions of the order were shown, or KeptIds; or Fail
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import trio

from p2p.streams import FrameStream
from tessella.core.audit_orders import INPUTS, open_order
from tessella.core.errors import (
    Busy,
    CallReplayed,
    NotAuthorized,
    OutOfTurn,
    StaleRecord,
    UnknownEntry,
)
from tessella.core.frames import MIB
from tessella.core.ids import PeerId
from tessella.core.messages import AuditOrder, KeptIds, KeptRows, SignedOrder
from tessella.core.tickets import CLOCK_SECONDS
from tessella.worker.audits.ring import Ring

# An auditor has one audit at a time, and one stream for it; one that was cut off may linger. Before
# an order is read anybody has one: as many as peers at a few addresses may have connections.
AUDIT_STREAMS = 64
AUDIT_STREAMS_PER_PEER = 2
# An auditor that connects and says nothing.
ASK_TIMEOUT = 3.0
# Of those with an order.
SHOWN_AT_ONCE = 4
# Sessions share the uplink: 4096 rows of the widest models take ten seconds at this.
BYTES_PER_SECOND = 8 * MIB
# Orders are remembered until they expire; so many in ten minutes are seven a second.
MAX_USED_ORDERS = 4096


class Keeper:
    """Serves the rows of one ring."""

    def __init__(
        self,
        ourselves: PeerId,
        issuers: Iterable[PeerId],
        ring: Ring,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`issuers` are the musivums whose keys are pinned; `clock` gives seconds since 1970."""
        self._ourselves = ourselves
        self._issuers = tuple(issuers)
        self._ring = ring
        self._clock = clock
        # By audit and side, until when the order could be used.
        self._used: dict[tuple[bytes, str], float] = {}
        self._turns = trio.CapacityLimiter(SHOWN_AT_ONCE)

    async def serve(self, stream: FrameStream) -> None:
        """Answer one order.

        Raises BadSignature, BadFrame and OutOfTurn for what is none, NotAuthorized, StaleRecord or
        CallReplayed for one that is not for this auditor, here, now; UnknownEntry for rows that are
        not kept, or not any more; Busy where too many orders are remembered.
        """
        message = await stream.receive(ASK_TIMEOUT)
        if not isinstance(message, SignedOrder):
            raise OutOfTurn(f"{type(message).__name__} in place of an audit order")
        order = self.admit(message, stream.peer_id)
        if order.side == INPUTS:
            await stream.send(self._ids(order))
            return
        async with self._turns:
            for kept in self._rows(order):
                await stream.send(kept)
                await trio.sleep(len(kept.tensor.data) / BYTES_PER_SECOND)

    def admit(self, signed: SignedOrder, auditor: PeerId) -> AuditOrder:
        """An order that this auditor may use here and now; it is used up. Raises as `serve`."""
        order, now = open_order(signed, self._issuers), self._clock()
        if order.keeper != self._ourselves:
            raise NotAuthorized(f"an audit order for {order.keeper} to show something")
        if order.auditor != auditor:
            raise NotAuthorized(f"{auditor} brought the audit order of {order.auditor}")
        if now > order.expires_at + CLOCK_SECONDS:
            raise StaleRecord(f"an audit order that expired {now - order.expires_at:.0f} s ago")
        self._use(order, now)
        return order

    def _use(self, order: AuditOrder, now: float) -> None:
        used = (order.audit_id, order.side)
        if used in self._used:
            raise CallReplayed("an audit order that was used before")
        if len(self._used) >= MAX_USED_ORDERS:
            self._used = {
                each: until for each, until in self._used.items() if until >= now - CLOCK_SECONDS
            }
        if len(self._used) >= MAX_USED_ORDERS:
            raise Busy(f"{MAX_USED_ORDERS} audit orders are remembered, and no more are taken")
        self._used[used] = order.expires_at

    def _ids(self, order: AuditOrder) -> KeptIds:
        ids = self._ring.token_ids(order.request_id, order.stop)
        if ids is None:
            raise _not_kept(order)
        return KeptIds(ids)

    def _rows(self, order: AuditOrder) -> Iterable[KeptRows]:
        frames = self._ring.rows(order.request_id, order.stop)
        if frames is None:
            raise _not_kept(order)
        return (KeptRows(position, tensor) for position, tensor in frames)


def _not_kept(order: AuditOrder) -> UnknownEntry:
    return UnknownEntry(f"{order.stop} positions of that request are not, or no longer, kept here")
