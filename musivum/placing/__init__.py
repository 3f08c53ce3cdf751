"""Who holds which layers, and who serves a request.

    orchestrator    the room for nodes: they register, announce, leave and report
    probes          whether a node is where it says    listing     what is listed of that
    moves           running nodes to other ranges      assigning   telling a node its range
    node_calls      calls to nodes over HTTP
    grants          tickets: the chain that serves     given       what nodes do not count yet

What is decided is a rule of `tessella.core`; here it is done.
"""
