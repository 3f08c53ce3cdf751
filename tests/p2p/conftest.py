"""Both networks behind one fixture: what holds for one must hold for the other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from p2p.peers import Host
from p2p.testing import MemoryNetwork
from tessella.core.identity import Identity

LOOPBACK = "/ip4/127.0.0.1/tcp/0"

OpenHost = Callable[[int], AbstractAsyncContextManager[Host]]


def _real(number: int) -> AbstractAsyncContextManager[Host]:
    from p2p.host import open_host

    return open_host(Identity(bytes([number]) * 32), listen=[LOOPBACK])


@pytest.fixture(params=["memory", pytest.param("libp2p", marks=pytest.mark.mesh)])
def open_peer(request: pytest.FixtureRequest) -> OpenHost:
    """A function that opens host number n, in memory or on the loopback interface."""
    if request.param == "libp2p":
        return _real
    net = MemoryNetwork()
    return lambda number: net.host(bytes([number]) * 32)
