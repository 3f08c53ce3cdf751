"""HTTP, at both ends: an app's errors and limits, the sockets it is served on, calls to others.

    app        a FastAPI app of this house    errors       the error tree as HTTP answers
    bodies     what a request may bring       limits       how often one address may ask
    streaming  answers in pieces
    server     an app on its sockets          connections  one client's, by Hypercorn
    listening  HOST:PORT, and its sockets     hosts        names and addresses, read strictly
    client     calls to JSON routes           targets      URLs that a stranger gave

A program makes its app with `make_app`, adds routes that raise errors of the tree, and starts
`serve_http` in its nursery.
"""
