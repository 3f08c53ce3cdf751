"""musivum, the orchestrator: where nodes register and find each other. It never sees a tensor.

config, registration        what an operator may set, and what a node may ask for
admission                   which calls are let in
node, roster                what is known of each node, and who holds which layers
manifests, reputation       which weights a model is, and what became of each identity
availability, prices        whether a model can be asked, and what its layers cost
books, saved, store         the state of one mesh, and how it outlives a restart
orchestrator, pages, operator    the rooms: what nodes, anyone, and the operator may have done
probes, assigning, moves    what musivum does by itself: look at nodes, tell them ranges, move them
tracker, routes             the two doors: libp2p and HTTP
status, metrics             what it says of itself
app                         the program, one nursery
"""
