"""Streams between nodes over HTTP, for where libp2p does not lead: a stage behind an HTTPS tunnel.

A stream of bytes is made of signed POSTs, and a `p2p.streams.FrameStream` stands on it as it does
on libp2p's: who uses one does not see which it is. See "The same over HTTP" in docs/wire.md.

    asks        what a POST says in its query, and what its answer says
    served      the end of a stream at the node that is called
    table       the streams that are open here, and whom they are of
    bodies      how many long bodies are read at once
    doors       a POST from its headers to its answer
    dialled     the end of a stream at the node that calls
    dialling    how one is opened, and what carries its POSTs
"""

from __future__ import annotations
