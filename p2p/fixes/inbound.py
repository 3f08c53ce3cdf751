"""Inbound connections: judged before their handshake, and what they took comes back."""

from __future__ import annotations

import logging
from typing import Any
from weakref import WeakKeyDictionary

import trio
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.swarm import Swarm
from multiaddr import Multiaddr

from p2p.gates import DEFAULT_INBOUND, Gate, Visit
from tessella.core.errors import Busy

logger = logging.getLogger(__name__)

CLOSE_LIMIT = 2.0

_gates: WeakKeyDictionary[Swarm, Gate] = WeakKeyDictionary()


def set_gate(swarm: Swarm, gate: Gate) -> None:
    """Judge what connects to this swarm by `gate`."""
    _gates[swarm] = gate


def gate_of(swarm: Swarm) -> Gate:
    """The gate of a swarm; one with the default limits where none was set."""
    default = Gate(DEFAULT_INBOUND, swarm.connection_config.max_connections)
    return _gates.setdefault(swarm, default)


async def _handle_inbound(
    self: Swarm,
    read_write_closer: Any,  # noqa: ANN401 - libp2p's
    maddr: Multiaddr,
) -> None:
    """Serve one accepted socket to its end, or close it at once."""
    address = read_write_closer.get_remote_address()
    try:
        if address is None:
            raise Busy("refused a socket that has no peer any more")
        visit = gate_of(self).enter(address[0], trio.current_time())
    except Busy as exc:
        # Not above debug: a flood must not become a flood of our log.
        logger.debug("%s", exc)
        await read_write_closer.close()
        return
    with visit:
        await _serve_inbound(self, read_write_closer, maddr, visit)


async def _serve_inbound(
    self: Swarm,
    read_write_closer: Any,  # noqa: ANN401 - libp2p's
    maddr: Multiaddr,
    visit: Visit,
) -> None:
    raw = RawConnection(read_write_closer, False)
    try:
        muxed = await self.upgrade_inbound_raw_conn(raw, maddr)
        visit.settle()
        await muxed.event_closed.wait()  # type: ignore[attr-defined]
    except Exception as exc:  # noqa: BLE001 - a stranger's connection may fail in any way
        logger.debug("an inbound connection ended: %r", exc)
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_LIMIT):
            await raw.close()


def give_inbound_slots_back() -> None:
    """Judge sockets by address before they cost anything, and give back what they held.

    In libp2p a slot is kept until the whole host ends: after 250 connections in the life of a
    process every further one is dropped, and a task is left over from each. What is not
    authenticated yet is counted for all strangers together, so one of them shuts out the rest.
    """
    Swarm._handle_inbound_connection = _handle_inbound  # type: ignore[method-assign]
