"""The stream to the next stage: hidden states go down it, progress and trouble come up."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from p2p.streams import FrameStream
from tessella.core.errors import (
    LocalError,
    OutOfTurn,
    PeerClosed,
    PeerGone,
    PeerReset,
    PeerSilent,
    RemoteFailure,
)
from tessella.core.ids import SessionId
from tessella.core.messages import HOP, Cancel, End, Fail, Hidden, Open, Park, Progress, Token
from tessella.core.progress import PROGRESS_SECONDS, Watch
from tessella.core.shapes import DType
from tessella.core.tensors import MIB, WireTensor
from tessella.engine.shard import Shard
from tessella.worker.proofs.witness import Witness
from tessella.worker.stage import Outcome
from tessella.worker.trust import Neighbourhood

if TYPE_CHECKING:
    import torch

# How long a farewell may take: within the second in which every stage frees a session's KV.
FAREWELL_TIMEOUT = 0.5

# Hidden states of one session that may be under way. The next stage has room for them, and so
# always reads on: a Cancel never waits behind work. A second of a fast link, four chunks at least.
WINDOW_BYTES = 64 * MIB

OnToken = Callable[[Token], Awaitable[None]]


def window_positions(hidden: int, dtype: DType) -> int:
    """Positions that a stage may send beyond those it was told are finished."""
    return WINDOW_BYTES // (hidden * dtype.itemsize)


class Downstream:
    """Our half of one session's hop to the next stage. An `Onward` once it is connected.

    Resource handling: whoever made it ends it with `end` or `cancel`, connected or not.
    """

    def __init__(
        self, opened: Open, dtype: DType, around: Neighbourhood, witness: Witness | None = None
    ) -> None:
        """`opened` is our own `Open`: its place moves on. `witness` vouches for what is sent."""
        self._opened = replace(opened, place=opened.place + 1)
        self._dtype = dtype
        self._witness = witness
        self._around = around
        self._stream: FrameStream | None = None
        self.peer = self._opened.chain[self._opened.place].peer_id
        self.watch = Watch(around.hop_timeout)
        self.trust = around.trust(self.peer)
        self._heard = trio.Event()
        # Only the entry sees the token that a step is for.
        self._sees_tokens = opened.place == 0
        self._token_owed = False

    async def connect(self) -> None:
        """Open the session at the next stage; what it thinks of it comes later.

        Raises PeerGone if that stage cannot be reached, ModelUnavailable if nobody knows it.
        """
        with self.trust:
            self._stream = await self._around.directory.stream_to(self.peer, HOP)
            # A stage that refused us already has said why, for `listen` to read.
            with suppress(PeerClosed, PeerReset):
                await self._stream.send(self._opened)

    def finish(self, shard: Shard, output: torch.Tensor, upto: int, sample: bool) -> Outcome:
        """The output as it travels. Raises NotFinite."""
        return shard.to_wire(output, self._dtype)

    async def send(self, outcome: Outcome, position: int, upto: int, sample: bool) -> None:
        """Send a hidden state on, when the window has room. Raises PeerGone.

        Without limit of its own: `guard` knows a slow stage from a silent one.
        """
        if not isinstance(outcome, WireTensor):
            raise LocalError("a stage before the tail hands on hidden states")
        session, room = self._opened, window_positions(outcome.shape[1], self._dtype)
        # Made with this step: the next one begins when this is sent.
        voucher = self._witness.voucher if self._witness is not None else b""
        hidden = Hidden(session.session_id, session.epoch, position, outcome, sample, voucher)
        # Where nothing is owed, nothing is under way, wherever the session goes on.
        while not sample and self.watch.waiting and upto - self.watch.done > room:
            await self._heard.wait()
        # A single position follows a token, and that token is the answer to all before it.
        answered = upto - position == 1
        self.watch.send(upto, trio.current_time(), answered=answered, start=position)
        self._token_owed = sample and self._sees_tokens
        with self.trust:
            try:
                await self._connected.send(hidden, timeout=math.inf)
            except PeerGone:
                # Why it went is the last that came up, and `listen` is about to read it.
                await trio.sleep(FAREWELL_TIMEOUT)
                raise
        self._around.counters.sent(self.peer, hidden)

    async def listen(self, on_token: OnToken) -> None:
        """Take what comes up until cancelled.

        Raises RemoteFailure for an error of a stage behind us, PeerGone if the next one went.
        """
        while True:
            with self.trust:
                message = await self._connected.receive()
                if isinstance(message, Fail):
                    raise RemoteFailure(message.code, message.text, retry=message.retry)
                if not isinstance(message, Progress | Token):
                    raise OutOfTurn(f"{type(message).__name__} from the next stage")
                if (message.session_id, message.epoch) != self._ours:
                    continue  # the last words about a session this stream carried before
            if isinstance(message, Token):
                await on_token(message)
            else:
                self._hear(message)

    def _hear(self, said: Progress) -> None:
        done = said.done
        if not self.watch.waiting:
            # From before all was done, and no new debt.
            done = self.watch.done
        elif self._token_owed:
            # A chain that says it is done, and no token: that is not the end of it.
            done = min(done, self.watch.sent - 1)
        self.watch.hear(said.counter, done, trio.current_time())
        self._heard.set()
        self._heard = trio.Event()

    async def guard(self) -> None:
        """Watch for silence until cancelled. Raises PeerSilent that names the next stage."""
        while True:
            await trio.sleep(min(PROGRESS_SECONDS, self.watch.limit / 4))
            with self.trust:
                if self.watch.silent(trio.current_time()):
                    layers = self._opened.chain[self._opened.place].layers
                    raise PeerSilent(
                        f"{self.peer} with layers {layers} made no progress for "
                        f"{self.watch.limit:g} s (p2p_inference_timeout_secs), at position "
                        f"{self.watch.done} of {self.watch.sent}"
                    )

    async def end(self, keep_seconds: float = 0.0) -> None:
        """The session is complete: say so, and keep the stream for another. Never fails.

        With `keep_seconds` the stages behind us keep its KV for so long.
        """
        if self._stream is None:
            return
        farewell = Park(*self._ours, keep_seconds) if keep_seconds else End(*self._ours)
        try:
            await self._stream.send(farewell, timeout=FAREWELL_TIMEOUT)
        except PeerGone:
            await self._stream.reset()
        else:
            self._around.directory.give(self._stream)

    async def cancel(self) -> None:
        """Nobody wants the rest: say so if we can, and let the stream go. Never fails."""
        if self._stream is None:
            return
        with trio.CancelScope(shield=True), trio.move_on_after(FAREWELL_TIMEOUT):
            try:
                await self._stream.send(Cancel(*self._ours), timeout=FAREWELL_TIMEOUT)
                await self._stream.aclose()
            except PeerGone:
                pass
        with trio.CancelScope(shield=True):
            await self._stream.reset()

    @property
    def _ours(self) -> tuple[SessionId, int]:
        return self._opened.session_id, self._opened.epoch

    @property
    def _connected(self) -> FrameStream:
        if self._stream is None:
            raise LocalError(f"no stream to {self.peer} yet")
        return self._stream
