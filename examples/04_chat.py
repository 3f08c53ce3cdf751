"""Ask a running mesh from Python. No torch is needed for this.

    python examples/04_chat.py --musivum /ip4/127.0.0.1/tcp/4001/p2p/12D3KooW... "Hello there"

`tessella up` prints the address of its musivum.
"""

from __future__ import annotations

import argparse
import os
import sys

import trio

from p2p.host import open_host
from tessella.client import ask_peers, complete
from tessella.core.addresses import PeerAddress, parse_peer
from tessella.core.completions import ChatMessage, CompletionRequest
from tessella.core.errors import TessellaError
from tessella.core.exits import exit_code
from tessella.core.identity import SEED_BYTES, Identity
from tessella.core.messages import Begun, Delta, Done
from tessella.core.peers import choose_entry
from tessella.core.sampling import Sampling

# `complete` bounds every single wait; this bounds the whole answer.
SECONDS = 300.0


async def chat(musivum: PeerAddress, prompt: str, sampling: Sampling) -> None:
    """Find a node, ask it, and print the answer as it comes."""
    # 1. A client is a peer as well, with an identity for the occasion and no port.
    async with open_host(Identity(os.urandom(SEED_BYTES)), listen=[]) as host:
        # 2. Who is there? Any healthy node with layer 0 can take a question.
        rows = await ask_peers(host, musivum)
        entry = choose_entry(rows)
        model = next(row.model for row in rows if row.peer_id == entry.peer_id)
        print(f"asking {entry.peer_id} for {model}", file=sys.stderr)

        # 3. The request is a value, checked before it is sent.
        message = ChatMessage("user", prompt)
        request = CompletionRequest(model=model, messages=(message,), sampling=sampling)

        # 4. The chain, then a piece of text a token, then the numbers.
        async for event in complete(host, entry, request):
            match event:
                case Begun():
                    for stage in event.chain:
                        print(f"  layers {stage.layers} at {stage.peer_id}", file=sys.stderr)
                case Delta():
                    print(event.text, end="", flush=True)
                case Done():
                    print(flush=True)
                    print(f"{event.completion_tokens} tokens ({event.reason})", file=sys.stderr)


def main() -> int:
    """Parse, ask, and say in one line what went wrong: 75 where trying again later may help."""
    parser = argparse.ArgumentParser(description="Ask a running mesh.")
    parser.add_argument("--musivum", required=True, metavar="MULTIADDR")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("prompt")
    given = parser.parse_args()
    status = 0

    async def ask() -> None:
        sampling = Sampling(max_tokens=given.max_tokens)
        with trio.fail_after(SECONDS):
            await chat(parse_peer(given.musivum), given.prompt, sampling)

    try:
        trio.run(ask)
    except* TessellaError as group:
        # Errors leave nurseries in groups, which may be nested: one line tells the first.
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, TessellaError):
            print(f"{error.code}: {error}", file=sys.stderr)
            status = exit_code(error)
    return status


if __name__ == "__main__":
    sys.exit(main())
