"""A stream that goes wrong ends; its connection and the node go on."""

from __future__ import annotations

import logging

from libp2p.abc import INetStream
from libp2p.host.basic_host import BasicHost
from libp2p.io.exceptions import IOException

logger = logging.getLogger(__name__)


def guard_handlers(host: BasicHost) -> None:
    """Stop every error of an inbound stream at that stream.

    libp2p awaits negotiation and handler bare, inside the service that runs the host: whatever
    they raise ends it. An end of stream that escapes is worse than a bug, because it counts as
    expected: the connection stays listed and accepts no stream any more.
    """
    stock = host._swarm_stream_handler

    async def guarded(stream: INetStream) -> None:
        try:
            await stock(stream)
        except Exception as exc:
            if isinstance(exc, IOException):
                logger.debug("an inbound stream ended: %r", exc)
            else:
                logger.exception("an inbound stream failed: %s", stream.get_protocol())
            await stream.reset()

    host.get_network().set_stream_handler(guarded)
