"""libp2p, and nothing else of it elsewhere: hosts, streams of frames, and a network in memory.

peers     what a peer can do, as protocols that the real and the memory network share
streams   FrameStream over any byte stream, and the pool that keeps them open
router    which handler serves which protocol, how many at a time
host      a libp2p host of one seed        fixes    what libp2p 0.8.1 needs to be trusted
gates     who may connect, and how often        supervisor   starts a host that died again
testing   the same API over memory, with latency and loss, on a virtual clock
dht       the swarm without a hub, over any of these hosts; its parts are the files kad_*
"""
