"""How the tail's tokens reach the entry: on a stream of their own, or up the chain without one.

That stream is libp2p's, or over HTTP where the tail cannot dial the entry.
"""

from __future__ import annotations

from contextlib import suppress

import trio

from tessella.core.errors import ModelUnavailable, PeerGone, RemoteFailure
from tessella.core.messages import Token
from tessella.worker.directory import Directory
from tessella.worker.terms import Terms
from tessella.worker.tokens import TokenStream
from tessella.worker.upstream import Upstream

# The stream is opened while the prefill is under way; the first token waits no longer for it.
PATIENCE_SECONDS = 1.0


class WayBack:
    """How the tail's tokens reach the entry: their own stream, or up the chain without one."""

    def __init__(self, terms: Terms, directory: Directory, upstream: Upstream) -> None:
        self._terms = terms
        self._directory = directory
        self._upstream = upstream
        self._stream: TokenStream | None = None
        self._opening = trio.CancelScope()
        self._decided = trio.Event()

    async def run(self) -> None:
        """Open the stream while the prefill is under way, then watch it.

        Raises RemoteFailure or PeerGone when the entry gives up an answer that it was being sent.
        """
        # An entry that is not reached from here is told up the chain.
        with self._opening, suppress(PeerGone, ModelUnavailable, RemoteFailure):
            self._stream = await TokenStream.open(self._directory, self._terms.opened)
        self._decided.set()
        if self._stream is not None:
            await self._stream.watch()

    async def say(self, token: Token) -> None:
        """Send one token. Raises PeerGone."""
        if not self._decided.is_set():
            with trio.move_on_after(PATIENCE_SECONDS):
                await self._decided.wait()
            self._opening.cancel()
            await self._decided.wait()
        if self._stream is not None:
            await self._stream.say(token)
        else:
            await self._upstream.say(token)

    async def close(self, complete: bool) -> None:
        """Keep the stream after a complete answer, give it up otherwise."""
        if self._stream is None:
            return
        if complete:
            self._stream.end()
        else:
            with trio.CancelScope(shield=True):
                await self._stream.reset()
