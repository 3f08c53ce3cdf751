"""A million spoiled messages through every decoder that reads what strangers send.

    python benchmarks/fuzz.py --count 1000000 --json

Whatever the bytes are, a decoder answers with a message or with the errors that its callers
expect, and keeps nothing. Exit 0 if that held, else 1. The same `--seed` spoils the same bytes.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import msgpack
from libp2p.io.abc import ReadWriteCloser
from libp2p.protocol_muxer.exceptions import MultiselectCommunicatorError
from libp2p.utils.varint import encode_delim

from benchmarks.mutations import example, spoil_body, spoil_bytes
from p2p import kad_wire
from p2p.fixes.negotiation import read_message
from p2p.yamux.wire import BadYamux, Parser, pack
from tessella.core import messages
from tessella.core.addresses import PeerAddress, parse_peer
from tessella.core.completions import ChatMessage, CompletionRequest
from tessella.core.errors import LocalError, TessellaError
from tessella.core.fields import to_plain
from tessella.core.frames import LENGTH_BYTES, MAX_CONTROL_FRAME, FrameReader, NeedData
from tessella.core.frames import pack as frame_of
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.peers import PeerRow, decode_rows, encode_rows
from tessella.core.records import PURPOSE_NODE_RECORD, NodeRecord, node_key, open_record
from tessella.core.shape_json import decode_shape, encode_shape
from tessella.core.shapes import ModelShape

NODE = Identity(b"f" * 32)
ADDRS = ("/ip4/203.0.113.7/tcp/4001", "/ip6/2001:db8::7/tcp/4001", "/dns4/example.org/tcp/443")
# After so many everything that is made once exists: interned strings, schemas, caches.
WARM_UP = 5_000
EXPECTED = (TessellaError, BadYamux, MultiselectCommunicatorError)
MOST_SHOWN = 5
MIB = 1024 * 1024


@dataclass(frozen=True)
class Target:
    """One decoder, what it takes, and how that is spoiled beyond blind changes."""

    name: str
    golden: list[bytes]
    decode: Callable[[bytes], object]
    spoil: Callable[[random.Random, bytes], bytes] = lambda chance, data: data


@dataclass
class Tally:
    """What came of it."""

    frames: int = 0
    accepted: int = 0
    refused: int = 0
    other_exceptions: int = 0
    rss_growth_mb: float = 0.0
    seconds: float = 0.0
    examples: list[str] = field(default_factory=list)


def read_frames(data: bytes) -> list[object]:
    """A stream of ours, fed in two pieces."""
    reader = FrameReader(MAX_CONTROL_FRAME)
    found: list[object] = []
    for piece in (data[: len(data) // 3], data[len(data) // 3 :]):
        reader.feed(piece)
        while not isinstance(body := reader.next_body(), NeedData):
            found.append(messages.decode(body))
    reader.close()
    return found


def spoil_frame(chance: random.Random, data: bytes) -> bytes:
    """A frame whose length is right and whose fields are not."""
    body = spoil_body(chance, data[LENGTH_BYTES:])
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def spoil_signed(chance: random.Random, data: bytes) -> bytes:
    """A record that its node did sign, and that breaks the rules: a hostile node's."""
    payload = spoil_body(chance, msgpack.unpackb(data)[0])
    signature = NODE.sign(PURPOSE_NODE_RECORD, payload)
    sealed: bytes = msgpack.packb([payload, signature])
    return sealed


def read_kad(data: bytes) -> list[object]:
    """A stream of kad-dht, fed in two pieces."""
    reader = kad_wire.MessageReader(kad_wire.MAX_QUESTION)
    found: list[object] = []
    for piece in (data[: len(data) // 3], data[len(data) // 3 :]):
        reader.feed(piece)
        while not isinstance(message := reader.next(), NeedData):
            found.append(message)
    reader.close()
    return found


def read_yamux(data: bytes) -> list[object]:
    """A connection of yamux, fed in two pieces."""
    parser = Parser()
    pieces = (data[: len(data) // 3], data[len(data) // 3 :])
    return [part for piece in pieces for part in parser.feed(piece)]


class Bytes(ReadWriteCloser):
    """Bytes that were read before."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self, n: int | None = None) -> bytes:
        """At most `n` bytes."""
        taken, self._data = self._data[:n], self._data[n or len(self._data) :]
        return taken

    async def write(self, data: bytes) -> None:
        """Not used."""

    async def close(self) -> None:
        """Not used."""

    def get_remote_address(self) -> tuple[str, int] | None:
        """None."""
        return None


def at_once(work: Coroutine[Any, Any, object]) -> object:
    """What a coroutine returns that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise RuntimeError("it waited")


def targets() -> list[Target]:
    """Every decoder, with what it is made for."""
    row = PeerRow(
        peer_id=NODE.peer_id,
        model=ModelId("m"),
        contract="c",
        layers=LayerRange(0, 2),
        total_layers=4,
        status="Healthy",
        addrs=ADDRS,
        device="cpu",
        dtype="f32",
        queue_depth=0,
        step_ms=1.5,
    )
    record = NodeRecord.of(row, sequence=1, made_at=1000.0, life=60.0)
    payload: bytes = msgpack.packb(to_plain(record))
    sealed: bytes = msgpack.packb([payload, NODE.sign(PURPOSE_NODE_RECORD, payload)])
    key = node_key(NODE.peer_id)
    request = CompletionRequest(model=ModelId("m"), messages=(ChatMessage("user", "é"),))
    peer = PeerAddress(NODE.peer_id, ADDRS)
    kad = [
        kad_wire.KadMessage(kind, key, sealed, (peer, peer), (peer,), "2026-01-01T00:00:00Z")
        for kind in kad_wire.Kind
    ]
    yamux = [
        pack(kind, flags, 1, length)
        for kind in range(4)
        for flags in (0, 1, 15)
        for length in (0, 5, 2**32 - 1)
    ]
    shape = ModelShape(
        family="llama",
        layers=12,
        hidden=128,
        intermediate=448,
        heads=4,
        kv_heads=4,
        head_dim=32,
        vocab=4096,
        context=256,
        tied=False,
    )
    return [
        Target(
            "frames",
            [messages.encode(example(kind)) for kind in messages.KINDS],
            read_frames,
            spoil_frame,
        ),
        Target("fields", [frame_of([number]) for number in range(99)], read_frames, spoil_frame),
        Target("rows", [encode_rows([row, row])], decode_rows),
        Target("shape", [encode_shape(shape)], decode_shape),
        Target("completion", [request.encode()], CompletionRequest.decode),
        Target("record", [sealed], lambda data: open_record(data, key, 1001.0), spoil_signed),
        Target("key", [key], lambda data: open_record(sealed, data, 1001.0)),
        Target(
            "address",
            [addr.encode() for addr in peer.full()],
            lambda data: parse_peer(data.decode("utf-8", "replace")),
        ),
        Target("kad", [kad_wire.encode(message) for message in kad], read_kad),
        Target("yamux", [*yamux, b"".join(yamux)], read_yamux),
        Target(
            "negotiation",
            [encode_delim(b"/multistream/1.0.0"), encode_delim(b"na")],
            lambda data: at_once(read_message(Bytes(data))),
        ),
    ]


def rss_mb() -> float:
    """Resident memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


def run(count: int, seed: int = 0) -> dict[str, Tally]:
    """Spoil `count` messages in all; by target, and together under "all"."""
    chance, all_targets = random.Random(seed), targets()
    found = {target.name: Tally() for target in all_targets}
    total = Tally()
    started, before = time.perf_counter(), rss_mb()
    for number in range(count):
        if number == min(WARM_UP, count // 2):
            gc.collect()
            before = rss_mb()
        target = all_targets[number % len(all_targets)]
        data = chance.choice(target.golden)
        if chance.random() < 0.5:
            data = target.spoil(chance, data)
        if chance.random() < 0.7:
            data = spoil_bytes(chance, data, target.golden)
        _judge(target, data, found[target.name], total)
    gc.collect()
    total.rss_growth_mb = round(rss_mb() - before, 2)
    total.seconds = round(time.perf_counter() - started, 2)
    return {"all": total, **found}


def _judge(target: Target, data: bytes, *tallies: Tally) -> None:
    outcome, shown = "accepted", ""
    try:
        target.decode(data)
    except Exception as exc:  # noqa: BLE001 - what is looked for
        if isinstance(exc, EXPECTED) and not isinstance(exc, LocalError):
            outcome = "refused"
        else:
            outcome = "other_exceptions"
            shown = f"{target.name}: {exc!r:.200} by {data.hex():.200}"
    for tally in tallies:
        tally.frames += 1
        setattr(tally, outcome, getattr(tally, outcome) + 1)
        if shown and len(tally.examples) < MOST_SHOWN:
            tally.examples.append(shown)


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", dest="as_json")
    asked = parser.parse_args()
    found = run(asked.count, asked.seed)
    total = found.pop("all")
    columns = ("frames", "accepted", "refused", "other_exceptions")
    if asked.as_json:
        shown = {
            **vars(total),
            "targets": {
                name: {column: getattr(tally, column) for column in columns}
                for name, tally in found.items()
            },
        }
        print(json.dumps(shown))
    else:
        for name, tally in (*found.items(), ("all", total)):
            print(f"{name:12}", *(f"{column} {getattr(tally, column)}" for column in columns))
        print(f"{total.rss_growth_mb} MB grown, {total.seconds} s")
        print(*total.examples, sep="\n")
    return 1 if total.other_exceptions else 0


if __name__ == "__main__":
    sys.exit(main())
