"""musivum, the orchestrator: where nodes register and find each other. It never sees a tensor.

config        what an operator may set          registration  what a node may ask for
admission     which calls are let in            roster        who holds which layers
probes        whether an accused peer answers   tracker       the conversation with nodes
status        what it tells anyone who asks     app           the program, one nursery
"""
