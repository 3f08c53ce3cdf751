"""The node: it joins a mesh, loads its layer range, and serves sessions.

node      one nursery, top to bottom        config    what an operator decides
tracker   musivum, from our side            directory who serves what, and where
stage     one session's arithmetic          sessions  all of them, inside a KV budget
hops      inbound hop streams               downstream the stream to the next stage
tail      the last stage: it chooses        tokens    what the entry waits for
entry     the first stage: it answers       complete  clients
status    what others may know              counters  what happened
"""
