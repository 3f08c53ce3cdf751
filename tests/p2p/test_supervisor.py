"""A host whose library dies is started again, a bounded number of times, with the same key."""

from __future__ import annotations

import logging

import pytest
import trio
from libp2p.tools.anyio_service import TrioManager
from trio.testing import MockClock

from p2p.host import Libp2pHost, open_host
from p2p.streams import FrameStream
from p2p.supervisor import DELAYS, FORGIVEN_AFTER, HostDied, delay_after, supervise
from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadConfig, PeerClosed, PeerGone
from tessella.core.identity import Identity
from tessella.core.ids import SessionId
from tessella.core.messages import HOP, Cancel

PING = Cancel(SessionId(bytes(16)), 1)
SECONDS = 10.0


@pytest.mark.parametrize("deaths", range(1, len(DELAYS) + 1))
def test_each_death_is_waited_for_longer(deaths: int) -> None:
    delay = delay_after(deaths)
    assert delay is not None
    assert delay > (delay_after(deaths - 1) or 0.0 if deaths > 1 else 0.0)
    assert delay_after(len(DELAYS) + deaths) is None


class Program:
    """A program that dies in given ways, one a start, and then returns."""

    def __init__(self, *ends: Exception, lasts: float = 0.0) -> None:
        self.ends = list(ends)
        self.lasts = lasts
        self.starts: list[float] = []

    async def __call__(self) -> None:
        self.starts.append(trio.current_time())
        await trio.sleep(self.lasts)
        if self.ends:
            raise self.ends.pop(0)


async def test_deaths_in_a_row_are_waited_out_and_each_is_one_line(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    program = Program(HostDied("a"), ExceptionGroup("", [PeerClosed("x"), HostDied("b")]))
    with caplog.at_level(logging.ERROR, "p2p.supervisor"):
        await supervise(program)
    assert program.starts == [0.0, DELAYS[0], DELAYS[0] + DELAYS[1]]
    assert caplog.messages == [
        f"a; starting again in {DELAYS[0]:g} s, 1 of {len(DELAYS)}",
        f"b; starting again in {DELAYS[1]:g} s, 2 of {len(DELAYS)}",
    ]


async def test_too_many_deaths_end_the_program(autojump_clock: MockClock) -> None:
    program = Program(*(HostDied("again") for _ in range(100)))
    with pytest.raises(HostDied, match="again, 5 times: not started again"):
        await supervise(program)
    assert len(program.starts) == len(DELAYS) + 1


async def test_old_deaths_are_forgiven(autojump_clock: MockClock) -> None:
    program = Program(*(HostDied("rarely") for _ in range(6)), lasts=FORGIVEN_AFTER)
    await supervise(program)
    assert len(program.starts) == 7


@pytest.mark.parametrize("raised", [BadConfig("a key"), PeerGone("a peer"), ValueError("a bug")])
async def test_everything_else_passes_at_once(raised: Exception) -> None:
    program = Program(raised)
    with pytest.raises(type(raised)):
        await supervise(program)
    assert len(program.starts) == 1


async def kill(host: Libp2pHost) -> None:
    """Fail a task that is libp2p's own."""

    async def fail() -> None:
        raise RuntimeError("a task of libp2p")

    manager = host.below.get_network().get_manager()
    assert isinstance(manager, TrioManager)
    manager.run_task(fail)


@pytest.mark.mesh
async def test_a_host_comes_back_with_its_key_and_its_port(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listen = ["/ip4/127.0.0.1/tcp/0"]
    send, up = trio.open_memory_channel[Libp2pHost](4)

    async def echo(stream: FrameStream) -> None:
        await stream.send(await stream.receive())

    async def once() -> None:
        async with open_host(Identity(b"s" * 32), listen=listen) as host:
            host.serve(HOP, echo, streams=4, per_peer=4)
            listen[:] = host.address.addrs
            await send.send(host)
            await trio.sleep_forever()

    async def works(server: PeerAddress) -> bool:
        async with open_host(Identity(b"c" * 32), listen=[]) as client:
            await client.connect(server, timeout=SECONDS)
            async with await client.open_stream(server.peer_id, HOP, timeout=SECONDS) as stream:
                await stream.send(PING)
                return bool(await stream.receive(SECONDS) == PING)

    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervise, once)
            host = await up.receive()
            first = host.address
            with caplog.at_level(logging.ERROR, "p2p.supervisor"):
                await kill(host)
                host = await up.receive()
            assert host.address == first
            assert await works(first)
            assert [line for line in caplog.messages if "starting again" in line] == [
                "libp2p failed: RuntimeError('a task of libp2p'); starting again in 0.5 s, 1 of 4"
            ]
            nursery.cancel_scope.cancel()


@pytest.mark.mesh
async def test_what_fails_because_the_host_died_does_not_hide_its_death() -> None:
    """A stream ends before its host does, and a program that cares raises at once."""
    starts = 0

    async def once() -> None:
        nonlocal starts
        starts += 1
        listen = ["/ip4/127.0.0.1/tcp/0"]
        async with (
            open_host(Identity(b"s" * 32), listen=listen) as host,
            open_host(Identity(b"c" * 32), listen=[]) as client,
        ):
            held = trio.Event()

            async def hold(stream: FrameStream) -> None:
                held.set()
                await trio.sleep_forever()

            host.serve(HOP, hold, streams=4, per_peer=4)
            await client.connect(host.address, timeout=SECONDS)
            stream = await client.open_stream(host.address.peer_id, HOP, timeout=SECONDS)
            await held.wait()
            if starts == 2:
                return
            await kill(client)
            await stream.receive()

    with trio.fail_after(SECONDS):
        await supervise(once)
    assert starts == 2
