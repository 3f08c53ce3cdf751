"""What musivum knows of nodes, and how that outlives a restart.

    registration    what a node may ask for            shared      what thousands have in common
    node            one node, a value                  saved       as the store keeps it, and back
    roster          all of them: who holds what        cover       which layers a group holds
    neighbours      how many are in one network        manifests   which weights a model is
    availability    whether a model can be asked       reputation  what became of each identity
    books           all of this for one mesh, opened from its store

Nothing here calls a node, and nothing knows the ledger.
"""
