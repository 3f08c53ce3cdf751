"""What anyone may read. A question is a method here, and both doors call it.

mesh            nodes, models and chains           prices      what a model would cost a node
ledger          the ledger, to whoever checks it   ledger_words    work and pay put into bodies
"""
