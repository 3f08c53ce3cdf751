"""Our own /yamux/1.0.0: the wire protocol is libp2p's, the way it waits and ends is ours.

wire        headers, and the parser that turns bytes into frames; no I/O
stream      one stream: its two windows, its inbox, its ends
connection  all streams of one secured connection: who writes when, and what a frame does
"""
