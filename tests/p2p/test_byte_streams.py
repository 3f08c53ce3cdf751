"""Protocols that are not of our frames, in memory and on real sockets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
import trio

from p2p.peers import Host
from p2p.streams import ByteStream
from tessella.core.errors import (
    BadFrame,
    LocalError,
    PeerClosed,
    PeerGone,
    PeerUnreachable,
    Refused,
)

OpenHost = Callable[[int], AbstractAsyncContextManager[Host]]
ECHO = "/echo/1"
SECONDS = 5.0


async def echo(stream: ByteStream) -> None:
    """Send back what comes, until the peer finishes."""
    while data := await stream.receive_some(100):
        await stream.send_all(data)


async def open_to(host: Host, other: Host) -> ByteStream:
    await host.connect(other.address, timeout=SECONDS)
    return await host.open_bytes(other.address.peer_id, ECHO, timeout=SECONDS)


async def received(stream: ByteStream) -> bytes:
    with trio.fail_after(SECONDS):
        return await stream.receive_some(100)


async def test_bytes_go_there_and_back_and_each_side_knows_the_other(open_peer: OpenHost) -> None:
    async with open_peer(1) as a, open_peer(2) as b:
        seen = []

        async def note(stream: ByteStream) -> None:
            seen.append(stream.peer_id)
            await echo(stream)

        b.serve_bytes(ECHO, note, streams=4, per_peer=4)
        stream = await open_to(a, b)
        await stream.send_all(b"bytes")
        assert await received(stream) == b"bytes"
        assert stream.peer_id == b.address.peer_id
        assert seen == [a.address.peer_id]
        await stream.aclose()


async def test_a_handler_that_returns_finishes_its_stream(open_peer: OpenHost) -> None:
    async with open_peer(1) as a, open_peer(2) as b:

        async def one(stream: ByteStream) -> None:
            await stream.send_all(await stream.receive_some(100))

        b.serve_bytes(ECHO, one, streams=4, per_peer=4)
        stream = await open_to(a, b)
        await stream.send_all(b"x")
        assert await received(stream) == b"x"
        assert await received(stream) == b""
        await stream.aclose()


@pytest.mark.parametrize("raised", [BadFrame("theirs"), ValueError("ours")])
async def test_a_handler_that_raises_resets_its_stream_only(
    open_peer: OpenHost, raised: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_peer(1) as a, open_peer(2) as b:

        async def fail(stream: ByteStream) -> None:
            if await stream.receive_some(1) == b"!":
                raise raised
            await echo(stream)

        b.serve_bytes(ECHO, fail, streams=4, per_peer=4)
        bad, good = await open_to(a, b), await open_to(a, b)
        with caplog.at_level(logging.ERROR, "p2p.router"):
            await bad.send_all(b"!")
            with pytest.raises(PeerGone) as gone:
                await received(bad)
        assert not isinstance(gone.value, PeerClosed)
        assert bool(caplog.records) == isinstance(raised, ValueError)
        await good.send_all(b".more")
        assert await received(good) == b"more"


async def test_beyond_the_quota_a_stream_is_reset(open_peer: OpenHost) -> None:
    async with open_peer(1) as a, open_peer(2) as b:
        b.serve_bytes(ECHO, echo, streams=2, per_peer=1)
        held = await open_to(a, b)
        await held.send_all(b"x")
        assert await received(held) == b"x"
        with pytest.raises(PeerGone):
            refused = await open_to(a, b)
            await received(refused)
        await held.aclose()
        await trio.sleep(0.1)
        again = await open_to(a, b)
        await again.send_all(b"y")
        assert await received(again) == b"y"


async def test_a_protocol_is_served_once_and_a_missing_one_refused(open_peer: OpenHost) -> None:
    async with open_peer(1) as a, open_peer(2) as b:
        with pytest.raises(PeerUnreachable):
            await a.open_bytes(b.address.peer_id, ECHO, timeout=SECONDS)
        with pytest.raises(Refused, match=ECHO):
            await open_to(a, b)
        b.serve_bytes(ECHO, echo, streams=1, per_peer=1)
        with pytest.raises(LocalError, match=ECHO):
            b.serve_bytes(ECHO, echo, streams=1, per_peer=1)
