"""Inbound connections that give back what they took."""

from __future__ import annotations

import ipaddress
import logging
from collections import Counter
from typing import Any
from weakref import WeakKeyDictionary

import trio
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.swarm import Swarm
from multiaddr import Multiaddr

logger = logging.getLogger(__name__)

# What one public address may hold of a node: a household or a lab behind one NAT.
MAX_PER_ADDRESS = 32
CLOSE_LIMIT = 2.0

_held: WeakKeyDictionary[Swarm, Counter[str]] = WeakKeyDictionary()


def _public_host(stream: Any) -> str | None:  # noqa: ANN401 - libp2p's read_write_closer
    """The address to count, if it is one that strangers have."""
    address = stream.get_remote_address()
    if address is None or not ipaddress.ip_address(address[0]).is_global:
        return None
    return str(address[0])


async def _serve_inbound(
    self: Swarm,
    read_write_closer: Any,  # noqa: ANN401 - libp2p's
    maddr: Multiaddr,
    failure_event: Any,  # noqa: ANN401 - libp2p's
) -> None:
    """Hold the slot that was taken for this connection until the connection ends."""
    held = _held.setdefault(self, Counter())
    host = _public_host(read_write_closer)
    if host is not None and held[host] >= MAX_PER_ADDRESS:
        logger.info("refused: %d connections from %s are open", MAX_PER_ADDRESS, host)
        await read_write_closer.close()
        return
    held[host or ""] += 1
    raw = RawConnection(read_write_closer, False)
    try:
        remote = self._build_remote_multiaddr(read_write_closer)
        if remote is None or await self.connection_gate.is_allowed(remote):
            muxed = await self.upgrade_inbound_raw_conn(raw, maddr)
            await muxed.event_closed.wait()  # type: ignore[attr-defined]
    except Exception as exc:  # noqa: BLE001 - a stranger's connection may fail in any way
        logger.debug("an inbound connection ended: %r", exc)
    finally:
        held[host or ""] -= 1
        held += Counter()  # drops hosts that hold nothing
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_LIMIT):
            await raw.close()


def give_inbound_slots_back() -> None:
    """Release an inbound connection's slot when that connection ends.

    In libp2p it waits for the whole host to end: after 250 connections in the life of a process
    every further one is dropped, and a task is left over from each.
    """
    Swarm._do_handle_inbound_connection = _serve_inbound  # type: ignore[method-assign]
