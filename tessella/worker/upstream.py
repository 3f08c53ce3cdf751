"""The stream from the stage before: what comes down it is checked, what goes up is said here."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from p2p.streams import FrameStream
from tessella.core.errors import BadTensor, OutOfTurn
from tessella.core.identity import SIGNATURE_BYTES
from tessella.core.messages import Cancel, End, Hidden, Park, Progress, Token
from tessella.core.progress import PROGRESS_SECONDS
from tessella.core.tensors import check_hidden, chunk_positions
from tessella.worker.downstream import window_positions
from tessella.worker.terms import Terms
from tessella.worker.trust import Neighbourhood

# A reader that takes no small frame for so long is not reading at all.
REPORT_TIMEOUT = 5.0

Farewell = End | Cancel | Park
ProgressOf = Callable[[], tuple[int, int]]
"""The compute counter, and the positions finished, here and behind us."""


class Upstream:
    """One session's half of an inbound hop stream."""

    def __init__(
        self, stream: FrameStream, terms: Terms, hidden: int, around: Neighbourhood
    ) -> None:
        self._stream = stream
        self._terms = terms
        self._hidden = hidden
        self._around = around
        self.received = 0
        """Positions that came."""
        # The chunk that asks for a token may come beside the window.
        window = window_positions(hidden, terms.dtype)
        self._room = window + chunk_positions(hidden, terms.dtype)
        self._put, self._chunks = trio.open_memory_channel[Hidden](math.inf)

    async def read(self) -> Farewell:
        """Queue hidden states until the session ends; how it ended.

        Never waits for the compute thread, so that the end is seen when it comes.
        Raises PeerGone if the stage before went away, and RemoteError for what may not come.
        """
        opened = self._terms.opened
        while True:
            message = await self._stream.receive()
            if not isinstance(message, Hidden | End | Cancel | Park):
                raise OutOfTurn(f"{type(message).__name__} inside a session")
            if (message.session_id, message.epoch) != (opened.session_id, opened.epoch):
                raise OutOfTurn("a frame of another session inside this one")
            if not isinstance(message, Hidden):
                return message
            self._queue(message)

    def _queue(self, hidden: Hidden) -> None:
        count = self._check(hidden)
        if count > self._room:
            raise OutOfTurn("more hidden states than the window holds")
        self._room -= count
        self.received = hidden.position + count
        self._around.counters.received(self._stream.peer_id, hidden)
        self._put.send_nowait(hidden)

    async def next(self) -> Hidden:
        """The next hidden state to compute, whenever it comes."""
        hidden = await self._chunks.receive()
        self._room += hidden.tensor.shape[0]
        return hidden

    def _check(self, hidden: Hidden) -> int:
        try:
            if len(hidden.voucher) not in (0, SIGNATURE_BYTES):
                raise BadTensor(f"hidden states with a voucher of {len(hidden.voucher)} bytes")
            return check_hidden(hidden.tensor, hidden=self._hidden, dtype=self._terms.dtype)
        except BadTensor as exc:
            self.blame(exc)
            raise

    def blame(self, error: BadTensor) -> None:
        """The stage before sent a tensor that lies."""
        self._around.blame(self._stream.peer_id, error)

    async def say(self, token: Token) -> None:
        """Pass a token up, where there is no shorter way to the entry."""
        await self._stream.send(token)

    async def report(self, progress: ProgressOf) -> None:
        """Tell the stage before, each second in which something is or was in hand."""
        said = 0
        opened = self._terms.opened
        while True:
            await trio.sleep(PROGRESS_SECONDS)
            counter, done = progress()
            if said != self.received:
                said = done
                report = Progress(opened.session_id, opened.epoch, counter, done)
                # A cancelled send breaks the stream, and what ended the session must go up it.
                with trio.CancelScope(shield=True):
                    await self._stream.send(report, timeout=REPORT_TIMEOUT)
