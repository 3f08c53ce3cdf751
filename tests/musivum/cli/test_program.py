"""The order of a start, and what is started again: on a network in memory, in virtual time."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import p2p.host
from musivum import store as stores
from musivum.cli.program import Program, live
from musivum.config import MusivumConfig
from musivum.store.memory import MemoryStore
from p2p.supervisor import HostDied
from p2p.testing import MemoryHost, MemoryNetwork
from tessella.core.addresses import LOOPBACK, PRIVATE
from tessella.core.errors import StoreLost
from tessella.core.identity import Identity
from tessella.ending import root_cause

IDENTITY = Identity(b"m" * 32)
CONFIG = MusivumConfig(http=(), listen=("/ip4/127.0.0.1/tcp/4001",))


def a_program(config: MusivumConfig = CONFIG, *, json_lines: bool = True) -> Program:
    return Program(
        config=config,
        identity=IDENTITY,
        token="t" * 64,
        json_lines=json_lines,
        until_stdin_closes=False,
    )


class Machine:
    """Hosts and stores as a test wants them, instead of sockets and disks."""

    def __init__(self) -> None:
        self.net = MemoryNetwork()
        self.opened: list[dict[str, Any]] = []
        self.deaths = 0
        self.kept = MemoryStore()
        self.led = trio.Event()
        self.led.set()
        self.spared = 0
        """How often the collector was."""

    def spare_the_collector(self) -> None:
        """Without going through all that the tests hold."""
        self.spared += 1

    @asynccontextmanager
    async def open_host(self, identity: Identity, **asked: Any) -> AsyncIterator[MemoryHost]:
        """A host, that dies at once as often as it is told to."""
        self.opened.append(asked)
        if len(self.opened) <= self.deaths:
            raise HostDied("libp2p ended by itself")
        async with self.net.host(identity) as host:
            yield host

    @asynccontextmanager
    async def open_store(
        self, url: str, *, wait: Callable[[], None] | None = None
    ) -> AsyncIterator[MemoryStore]:
        """A store that another musivum has until `led`."""
        assert url == CONFIG.database
        if not self.led.is_set() and wait is not None:
            wait()
        await self.led.wait()
        yield self.kept


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine that `live` runs on."""
    made = Machine()
    monkeypatch.setattr(p2p.host, "open_host", made.open_host)
    monkeypatch.setattr(stores, "open_store", made.open_store)
    monkeypatch.setattr("musivum.cli.program.spare_the_collector", made.spare_the_collector)
    return made


@asynccontextmanager
async def running(program: Program) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(live, program)
        await trio.sleep(60)
        yield
        nursery.cancel_scope.cancel()


async def test_a_ready_musivum_says_where_it_is(
    machine: Machine, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(a_program()):
        (line,) = capsys.readouterr().out.splitlines()
    ready = json.loads(line)
    assert (ready["event"], ready["peer_id"], ready["http"]) == ("ready", IDENTITY.peer_id, [])
    assert all(addr.endswith(f"/p2p/{IDENTITY.peer_id}") for addr in ready["addrs"])
    assert ready["addrs"]
    async with running(a_program(json_lines=False)):
        first, *addrs = capsys.readouterr().out.splitlines()
    assert first == f"musivum {IDENTITY.peer_id} listens on"
    assert [addr[:3] for addr in addrs] == ["  /"] * len(ready["addrs"])


@pytest.mark.parametrize("json_lines", [True, False])
async def test_a_standby_opens_no_port_before_it_leads(
    json_lines: bool,
    machine: Machine,
    autojump_clock: MockClock,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine.led = trio.Event()
    async with running(a_program(json_lines=json_lines)):
        (line,) = capsys.readouterr().out.splitlines()
        assert line == '{"event": "standby"}' if json_lines else line.startswith("musivum stands")
        assert machine.opened == []
        machine.led.set()
        await trio.sleep(1)
        assert len(machine.opened) == 1
        assert IDENTITY.peer_id in capsys.readouterr().out


async def test_a_host_that_died_is_started_again_on_the_same_port(
    machine: Machine, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.deaths = 1
    async with running(a_program()):
        assert len(machine.opened) == 2
        assert capsys.readouterr().out.count('"ready"') == 1
        assert machine.spared == 1, "of what serves, and not of what died"


@pytest.mark.parametrize(
    "changed", [{"listen": ("/ip4/127.0.0.1/tcp/0",)}, {"http": ("127.0.0.1:0",)}]
)
async def test_a_port_that_nobody_would_look_for_is_not_opened_again(
    changed: dict[str, Any], machine: Machine, autojump_clock: MockClock
) -> None:
    machine.deaths = 1
    with pytest.raises(ExceptionGroup) as caught:
        await live(a_program(replace(CONFIG, **changed)))
    assert isinstance(root_cause(caught.value), HostDied)
    assert len(machine.opened) == 1


async def test_a_lost_store_ends_it_for_good(
    machine: Machine, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def load() -> None:
        raise StoreLost("the disk is gone")

    monkeypatch.setattr(machine.kept, "load", load)
    with pytest.raises(ExceptionGroup) as caught:
        await live(a_program())
    assert isinstance(root_cause(caught.value), StoreLost)
    assert len(machine.opened) == 1


async def test_a_bootstrap_peer_needs_no_database(
    machine: Machine, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.led = trio.Event()  # who asked for the store would wait
    async with running(a_program(replace(CONFIG, bootstrap_only=True))):
        assert '"ready"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("listen", "allowed", "neighbours"),
    [
        ("/ip4/127.0.0.1/tcp/4001", True, (*LOOPBACK, *PRIVATE)),
        ("/ip4/8.8.8.8/tcp/4001", False, LOOPBACK),
    ],
)
async def test_the_host_has_the_limits_of_the_settings(
    listen: str,
    allowed: bool,
    neighbours: tuple[Any, ...],
    machine: Machine,
    autojump_clock: MockClock,
) -> None:
    office = ip_network("192.0.2.0/24")
    config = replace(CONFIG, listen=(listen,), max_connections=7, exempt=(office,))
    async with running(a_program(config)):
        (asked,) = machine.opened
    assert asked["listen"] == (listen,)
    assert asked["allow_private"] is allowed
    assert asked["limits"].connections == 7
    assert set(asked["limits"].inbound.exempt) == {*neighbours, office}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_also_while_it_stands_by(
    number: signal.Signals, machine: Machine, autojump_clock: MockClock
) -> None:
    machine.led = trio.Event()
    with trio.fail_after(600):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(live, a_program())
            await trio.sleep(1)
            os.kill(os.getpid(), number)
    assert machine.opened == []
