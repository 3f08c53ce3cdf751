"""Two peers on real libp2p, in one process: one asks, the other answers.

    python examples/01_two_peers.py

A peer is a 32-byte seed. Its peer id is its public key, so whoever dials an address knows who
has to be there, and Noise proves it. What travels are frames: see tessella/core/messages.py.
"""

from __future__ import annotations

import json
import os

import trio

from p2p.host import open_host
from p2p.streams import FrameStream
from tessella.core.identity import SEED_BYTES, Identity
from tessella.core.messages import STATUS, AskStatus, Status

# Every wait has a limit, also on one machine.
SECONDS = 10.0
LOOPBACK = "/ip4/127.0.0.1/tcp/0"


async def answer(stream: FrameStream) -> None:
    """Serve one stream: the router ends it when this returns, and tells the peer if it raises."""
    question = await stream.receive(timeout=SECONDS)
    print(f"  bob got {type(question).__name__} from {stream.peer_id}")
    await stream.send(Status(json.dumps({"says": "hello"}).encode()), timeout=SECONDS)


async def main() -> None:
    """Open two hosts, ask one question, and close them again."""
    # 1. Two identities. A real node keeps its seed in a file: see tessella/keys.py.
    alice_key, bob_key = Identity(os.urandom(SEED_BYTES)), Identity(os.urandom(SEED_BYTES))

    # 2. Two hosts. Bob listens on a free port; Alice only asks, so she listens nowhere.
    async with (
        open_host(bob_key, listen=[LOOPBACK]) as bob,
        open_host(alice_key, listen=[]) as alice,
    ):
        # 3. Bob says which protocol he answers, and how much of it at a time.
        bob.serve(STATUS, answer, streams=8, per_peer=2)
        (address,) = bob.address.full()
        print(f"bob listens on {address}")

        # 4. Alice connects: TCP, then Noise, which proves that Bob holds the key of his peer id.
        await alice.connect(bob.address, timeout=SECONDS)

        # 5. One stream, one question, one answer. The stream is closed in order at the end.
        async with await alice.open_stream(bob_key.peer_id, STATUS, timeout=SECONDS) as stream:
            await stream.send(AskStatus(), timeout=SECONDS)
            reply = await stream.receive(timeout=SECONDS)

        # 6. A peer may send any message at any time: look at what came before using it.
        if not isinstance(reply, Status):
            raise SystemExit(f"bob answered with {type(reply).__name__}")
        print(f"alice got {json.loads(reply.document)}")


if __name__ == "__main__":
    trio.run(main)
