"""A musivum as a program, and what it lists."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from tessella.core.addresses import PeerAddress, parse_peer
from tessella.core.ids import PeerId
from tessella.keys import load_or_create_key
from tessella.web.client import CallLimits, get_json, open_client
from tests.mesh.restarts.program import BEAT, LOOK_SECONDS, Program

HOST = "127.0.0.1"
# By then a list is right, whatever its musivum missed.
RIGHT_SECONDS = 2 * BEAT
MAX_LIST = 4 << 20

Listed = dict[PeerId, dict[str, Any]]
"""The bodies of /peers, by peer id."""
Wrong = Callable[[Listed], Collection[str]]
"""What is wrong with a list."""


@dataclass
class Musivum(Program):
    """A musivum: its key, its directory and its ports are the same in every life."""

    address: PeerAddress = field(default_factory=lambda: PeerAddress(PeerId(""), ()))
    ports: tuple[int, int] = (0, 0)

    def forget_all(self) -> None:
        """Delete the file, and what SQLite keeps beside it."""
        for file in self.home.glob("musivum.db*"):
            file.unlink()

    async def peers(self) -> Listed:
        """What it lists at /peers, by peer id."""
        async with open_client() as client:
            url = f"http://{HOST}:{self.ports[1]}/peers"
            rows: Any = await get_json(client, url, limits=CallLimits(answer=MAX_LIST))
        return {PeerId(row["peer_id"]): row for row in rows}

    async def right(self, wrong: Wrong) -> float:
        """Seconds until `wrong` finds nothing in the list; it has RIGHT_SECONDS from here on."""
        began = trio.current_time()
        while found := wrong(await self.peers()):
            took = trio.current_time() - began
            assert took < RIGHT_SECONDS, f"after {took:.2f} s: {found}"
            await trio.sleep(LOOK_SECONDS)
        return trio.current_time() - began

    def open_ports(self) -> list[int]:
        """Those of its ports that somebody listens on."""
        return [port for port in self.ports if _is_open(port)]


def _is_open(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex((HOST, port)) == 0


def a_musivum(home: Path, database_url: str) -> Musivum:
    """One that was not started yet, at an address that is known already."""
    home.mkdir(parents=True)
    p2p, http = free_ports(2)
    peer_id = load_or_create_key(home / "musivum.key").peer_id
    args = ["serve", "--p2p", f"{HOST}:{p2p}", "--http", f"{HOST}:{http}", "--data", str(home)]
    args += ["--min-vram-mb", "0"]
    if database_url:
        args += ["--database-url", database_url]
    address = parse_peer(f"/ip4/{HOST}/tcp/{p2p}/p2p/{peer_id}")
    return Musivum("musivum.cli", tuple(args), home, address=address, ports=(p2p, http))


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on, no two the same."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
