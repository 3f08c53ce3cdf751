"""One end of a connection for `p2p.py`, in a process of its own: ours, or libp2p as it comes.

    python benchmarks/p2p_side.py ours serve
    python benchmarks/p2p_side.py ours ask /ip4/127.0.0.1/tcp/4001/p2p/12D3…

The one that serves prints its address. The one that asks reads the name of a measurement from each
line of its standard input, and answers with a line of JSON. Both end with their standard input.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Protocol

import trio

ECHO, SINK = "/bench/echo/1", "/bench/sink/1"
LOOPBACK = "/ip4/127.0.0.1/tcp/0"
MESSAGE = os.urandom(1200)
BULK = 16 * 1024 * 1024
PIECE = 64 * 1024
ECHOES, OPENINGS = 1000, 60
SEEDS = {"serve": b"s" * 32, "ask": b"c" * 32}
SECONDS = 30.0


class Stream(Protocol):
    """What both kinds of streams can do."""

    async def write(self, data: bytes) -> None:
        """All of it."""

    async def read(self) -> bytes:
        """What is there; b"" at the end."""

    async def end(self) -> None:
        """Give it up."""


Handler = Callable[[Stream], Awaitable[None]]


class Side(Protocol):
    """One host."""

    def address(self) -> str:
        """Where it listens, with its peer id."""

    def serve(self, protocol: str, handler: Handler) -> None:
        """Answer a protocol."""

    async def connect(self, address: str) -> Callable[[str], Awaitable[Stream]]:
        """Connect; a function that opens streams of a protocol."""


async def echo(stream: Stream) -> None:
    """Send back what comes."""
    while data := await stream.read():
        await stream.write(data)


async def sink(stream: Stream) -> None:
    """Take BULK bytes, again and again, and say when they are here."""
    got = 0
    while data := await stream.read():
        got += len(data)
        if got >= BULK:
            got -= BULK
            await stream.write(b"done")


class OurStream:
    """A ByteStream of ours."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - imported later, or not at all
        self.write = stream.send_all
        self.read = partial(stream.receive_some, 1024 * 1024)
        self.end = stream.reset


@asynccontextmanager
async def ours(seed: bytes) -> AsyncIterator[Side]:
    """Our host, as every program has it."""
    from p2p.host import open_host
    from tessella.core.addresses import parse_peer
    from tessella.core.identity import Identity

    class Ours:
        def address(self) -> str:
            return host.address.full()[0]

        def serve(self, protocol: str, handler: Handler) -> None:
            async def answer(stream: Any) -> None:  # noqa: ANN401 - a ByteStream
                await handler(OurStream(stream))

            host.serve_bytes(protocol, answer, streams=64, per_peer=64)

        async def connect(self, address: str) -> Callable[[str], Awaitable[Stream]]:
            peer = parse_peer(address)
            await host.connect(peer, timeout=SECONDS)

            async def open_stream(protocol: str) -> Stream:
                opened = await host.open_bytes(peer.peer_id, protocol, timeout=SECONDS)
                return OurStream(opened)

            return open_stream

    async with open_host(Identity(seed), listen=[LOOPBACK]) as host:
        yield Ours()


class StockStream:
    """A NetStream of libp2p's."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - imported later, or not at all
        self._stream = stream
        self.write = stream.write
        self.end = stream.reset

    async def read(self) -> bytes:
        """What is there."""
        from libp2p.network.stream.exceptions import StreamError

        try:
            return bytes(await self._stream.read(1024 * 1024))
        except StreamError:
            return b""


@asynccontextmanager
async def stock(seed: bytes) -> AsyncIterator[Side]:
    """libp2p with its defaults, but for Noise as the only security, as we have it."""
    from libp2p import new_host
    from libp2p.crypto.ed25519 import create_new_key_pair
    from libp2p.crypto.x25519 import create_new_key_pair as new_noise_keys
    from libp2p.custom_types import TProtocol
    from libp2p.peer.peerinfo import info_from_p2p_addr
    from libp2p.security.noise.transport import PROTOCOL_ID, Transport
    from multiaddr import Multiaddr

    keys = create_new_key_pair(seed)
    noise = Transport(keys, noise_privkey=new_noise_keys().private_key)
    listen = [Multiaddr(LOOPBACK)]
    host = new_host(key_pair=keys, sec_opt={PROTOCOL_ID: noise}, listen_addrs=listen)

    class Stock:
        def address(self) -> str:
            return str(host.get_addrs()[0])

        def serve(self, protocol: str, handler: Handler) -> None:
            async def answer(stream: Any) -> None:  # noqa: ANN401 - a NetStream
                try:
                    await handler(StockStream(stream))
                finally:
                    await stream.reset()

            host.set_stream_handler(TProtocol(protocol), answer)

        async def connect(self, address: str) -> Callable[[str], Awaitable[Stream]]:
            info = info_from_p2p_addr(Multiaddr(address))
            await host.connect(info)

            async def open_stream(protocol: str) -> Stream:
                return StockStream(await host.new_stream(info.peer_id, [TProtocol(protocol)]))

            return open_stream

    async with host.run(listen):
        yield Stock()


SIDES: dict[str, Callable[[bytes], AbstractAsyncContextManager[Side]]] = {
    "ours": ours,
    "stock": stock,
}


def percentile(seconds: list[float], part: float) -> float:
    """Microseconds."""
    return round(sorted(seconds)[int(len(seconds) * part)] * 1e6, 1)


async def measure_rtt(streams: dict[str, Stream]) -> dict[str, float]:
    """A message there and back, one at a time."""
    stream, seconds = streams[ECHO], []
    for _ in range(ECHOES):
        started = time.perf_counter()
        await stream.write(MESSAGE)
        got = 0
        while got < len(MESSAGE):
            got += len(await stream.read())
        seconds.append(time.perf_counter() - started)
    return {"rtt_us_p50": percentile(seconds, 0.5), "rtt_us_p99": percentile(seconds, 0.99)}


async def measure_bulk(streams: dict[str, Stream]) -> dict[str, float]:
    """16 MiB one way, in pieces of 64 KiB, until the other side has them all."""
    stream, piece = streams[SINK], bytes(PIECE)
    started = time.perf_counter()
    for _ in range(BULK // PIECE):
        await stream.write(piece)
    got = b""
    while len(got) < len(b"done"):
        got += await stream.read()
    return {"bulk_mb_s": round(BULK / 1e6 / (time.perf_counter() - started), 1)}


async def measure_open(open_stream: Callable[[str], Awaitable[Stream]]) -> dict[str, float]:
    """Until a protocol is agreed on."""
    seconds = []
    for _ in range(OPENINGS):
        started = time.perf_counter()
        stream = await open_stream(ECHO)
        seconds.append(time.perf_counter() - started)
        await stream.end()
    return {"stream_open_us": percentile(seconds, 0.5)}


async def lines() -> AsyncIterator[str]:
    """The standard input."""
    while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):  # type: ignore[call-arg, unused-ignore]
        yield line.strip()


async def main(side: str, role: str, *address: str) -> None:
    """The program."""
    async with SIDES[side](SEEDS[role]) as host:
        if role == "serve":
            host.serve(ECHO, echo)
            host.serve(SINK, sink)
            print(host.address(), flush=True)
            async for _ in lines():
                pass
            return
        open_stream = await host.connect(address[0])
        # Identify and its like have to be over.
        await trio.sleep(1)
        streams = {protocol: await open_stream(protocol) for protocol in (ECHO, SINK)}
        print("ready", flush=True)
        async for name in lines():
            found = await (
                measure_open(open_stream)
                if name == "open"
                else {"rtt": measure_rtt, "bulk": measure_bulk}[name](streams)
            )
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
