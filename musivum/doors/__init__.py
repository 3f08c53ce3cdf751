"""How callers come in. HTTP is in `musivum.routes`, and leads to the same rooms.

    tracker     `/musivum/tracker/1`: nodes, and what anyone asks about the mesh
    ledger      `/musivum/ledger/1`: tickets before the work, pay after it
    status      `/tessella/status/1`: what musivum says of itself
    frames      a libp2p door: many asks on one stream, one answer each
    questions   the names under which musivum answers, on libp2p and HTTP alike
    answers     answers to those, the dear ones kept for a second
    settling    where proofs come in, and how fast

Who comes in is admitted by `musivum.admission`.
"""
