"""The command `musivum`: each sub-command parses, calls, says what came of it, and returns.

main     the sub-commands, and how the program ends
serve    the flags of `serve`            program   what it runs until it is told to stop
asking   a running musivum over HTTP     showing   answers as tables and JSON
mesh     status and peers                orders    rebalance and reputation
accounts credits, slash and appeal       ledger    what was paid, and whether it holds
manifest, config                         pages     documents made from the settings
"""

from __future__ import annotations

from musivum.cli.main import app, run

__all__ = ["app", "run"]
