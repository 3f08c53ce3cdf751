"""The node: it joins a mesh, loads its layer range, and serves sessions.

node      one nursery, top to bottom        config    what an operator decides
mesh      where nodes meet                  joining   which mesh, as the operator decided
membership, tracker  musivum, from our side swarm     the mesh without a musivum
assignment  the range to hold               orders    who may tell us another
shards    load, serve, drain, free          loading, model  from a range to what serves it
serving   who works with the shard          state     where the node is in its life
directory who serves what, and where        availability  a chain, or what is missing
stage     one session's arithmetic          sessions  all of them, inside a KV budget
hop_streams, hops  inbound sessions         downstream the stream to the next stage
tail      the last stage: it chooses        tokens    what the entry waits for
entry     the first stage: it answers       complete  clients
status    what others may know              counters  what happened
trust     what all streams share, and who is blamed for what breaks on them
retries   trying again                      testing   a musivum that does as a test says
"""
