"""The stream to the next stage: hidden states go down it, progress and trouble come up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import trio

from p2p.streams import FrameStream
from tessella.core.errors import OutOfTurn, PeerGone, PeerSilent, RemoteFailure, TessellaError
from tessella.core.ids import PeerId
from tessella.core.messages import HOP, Cancel, End, Fail, Hidden, Open, Progress, Token
from tessella.core.progress import PROGRESS_SECONDS, Watch
from tessella.core.shapes import DType
from tessella.core.tensors import WireTensor
from tessella.engine.shard import Shard
from tessella.worker.counters import Counters
from tessella.worker.directory import Directory
from tessella.worker.stage import Outcome

if TYPE_CHECKING:
    import torch

# How long a farewell may take: within the second in which every stage frees a session's KV.
FAREWELL_TIMEOUT = 0.5

OnToken = Callable[[Token], Awaitable[None]]
Blame = Callable[[PeerId, TessellaError], None]


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What every hop of a node shares."""

    directory: Directory
    counters: Counters
    hop_timeout: float
    blame: Blame
    """Called with a peer that failed us, and how."""

    @contextmanager
    def blaming(self, peer: PeerId) -> Iterator[None]:
        """Whoever goes away in here is counted and reported. Errors pass through."""
        try:
            yield
        except PeerGone as exc:
            self.blame(peer, exc)
            raise


class Downstream:
    """Our half of one session's hop to the next stage. An `Onward`."""

    def __init__(
        self, stream: FrameStream, opened: Open, dtype: DType, around: Neighbourhood
    ) -> None:
        self._stream = stream
        self._opened = opened
        self._dtype = dtype
        self._around = around
        self.peer = stream.peer_id
        self.watch = Watch(around.hop_timeout)

    @classmethod
    async def open(cls, opened: Open, dtype: DType, around: Neighbourhood) -> Downstream:
        """Open the session at the next stage. `opened` is our own `Open`: its place moves on.

        Raises PeerGone if that stage cannot be reached; what it thinks of the session comes later.
        """
        onward = replace(opened, place=opened.place + 1)
        peer = onward.chain[onward.place].peer_id
        with around.blaming(peer):
            stream = await around.directory.stream_to(peer, HOP)
            await stream.send(onward)
        return cls(stream, onward, dtype, around)

    def finish(self, shard: Shard, output: torch.Tensor, upto: int, sample: bool) -> Outcome:
        """The output as it travels. Raises NotFinite."""
        return shard.to_wire(output, self._dtype)

    async def send(self, outcome: Outcome, position: int, upto: int, sample: bool) -> None:
        """Send a hidden state on. Raises PeerGone."""
        if not isinstance(outcome, WireTensor):
            raise TypeError("a stage before the tail hands on hidden states")
        session = self._opened
        hidden = Hidden(session.session_id, session.epoch, position, outcome, sample)
        # A single position follows a token, and that token is the answer to all before it.
        answered = upto - position == 1
        self.watch.send(upto, trio.current_time(), answered=answered)
        with self._around.blaming(self.peer):
            await self._stream.send(hidden)
        self._around.counters.sent(self.peer, hidden)

    async def listen(self, on_token: OnToken) -> None:
        """Take what comes up until cancelled.

        Raises RemoteFailure for an error of a stage behind us, PeerGone if the next one went.
        """
        ours = (self._opened.session_id, self._opened.epoch)
        while True:
            with self._around.blaming(self.peer):
                message = await self._stream.receive()
            if isinstance(message, Fail):
                raise RemoteFailure(message.code, message.text, retry=message.retry)
            if not isinstance(message, Progress | Token):
                raise OutOfTurn(f"{type(message).__name__} from the next stage")
            if (message.session_id, message.epoch) != ours:
                continue  # the last words about a session this stream carried before
            if isinstance(message, Progress):
                self.watch.hear(message.counter, message.done, trio.current_time())
            else:
                await on_token(message)

    async def guard(self) -> None:
        """Watch for silence until cancelled. Raises PeerSilent that names the next stage."""
        while True:
            await trio.sleep(min(PROGRESS_SECONDS, self.watch.limit / 4))
            with self._around.blaming(self.peer):
                if self.watch.silent(trio.current_time()):
                    raise PeerSilent(
                        f"{self.peer} made no progress for {self.watch.limit:g} s, "
                        f"at position {self.watch.done} of {self.watch.sent}"
                    )

    async def end(self) -> None:
        """The session is complete: say so, and keep the stream for another."""
        await self._stream.send(End(self._opened.session_id, self._opened.epoch))
        self._around.directory.give(self._stream)

    async def cancel(self) -> None:
        """Nobody wants the rest: say so if we can, and let the stream go. Never raises PeerGone."""
        with trio.CancelScope(shield=True), trio.move_on_after(FAREWELL_TIMEOUT):
            try:
                cancel = Cancel(self._opened.session_id, self._opened.epoch)
                await self._stream.send(cancel, timeout=FAREWELL_TIMEOUT)
                await self._stream.aclose()
            except PeerGone:
                pass
        with trio.CancelScope(shield=True):
            await self._stream.reset()
