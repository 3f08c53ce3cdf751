"""musivum, the orchestrator: where nodes register and find each other. It never sees a tensor.

Imports go down this list, and import-linter holds it.

    cli         the command                            settings    flags, environment, file
    app         the program, one nursery
    routes      the HTTP door                          metrics     counters for Prometheus
    doors       the libp2p doors, and the names of all questions
    operator    the operator's room                    federation  other musivums whose pay counts
    placing     who holds which layers, who serves     audit_room  what the doors need of audits
    pages       what anyone may read
    bodies      the JSON of all of it
    audits      who is looked at, by whom, and what follows
    ledger      what was worked, and what it earned    nodes       what is known of each node
    admission   which calls are let in                 clocks      what time it is
    store       how it all outlives a restart          config      what an operator may set

`testing` and `testing_http` are for tests: a musivum in memory, and who calls it.
"""
