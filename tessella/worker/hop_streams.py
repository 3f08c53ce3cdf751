"""Inbound hop streams: session after session on each, by whatever shard is loaded at its time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from p2p.streams import FrameStream
from tessella.core.errors import OutOfTurn, PeerGone
from tessella.core.messages import Open
from tessella.worker.serving import Serving
from tessella.worker.state import Loaded
from tessella.worker.tokens import BETWEEN_TIMEOUT


@dataclass(frozen=True, slots=True)
class HopStreams:
    """The handler of hop streams. An idle one outlives a shard, and holds nothing of it."""

    serving: Serving

    async def serve(self, stream: FrameStream) -> None:
        """Handle one stream until the stage before finishes it.

        Errors leave: the router answers them with their code, and the stream ends.
        """
        while True:
            try:
                opened = await stream.receive(BETWEEN_TIMEOUT)
            except PeerGone:
                return  # between sessions: nothing is owed to anyone
            if not isinstance(opened, Open):
                raise OutOfTurn(f"{type(opened).__name__} before a session is open")
            await self.serving.lend(partial(_run, opened, stream))


async def _run(opened: Open, stream: FrameStream, loaded: Loaded) -> None:
    await loaded.hops.run(opened, stream)
