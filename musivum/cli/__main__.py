"""`python -m musivum.cli`."""

from __future__ import annotations

from musivum.cli.main import run

run()
