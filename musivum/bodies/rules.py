"""What is checked of JSON from outside beside its schema: what would pass, or choke its reader."""

from __future__ import annotations

from pydantic import BeforeValidator

# No call has more than 20. Each field that is not known is an error of its own to whoever validates
# them, and a body has room for thirty thousand.
MAX_FIELDS = 64


def _few(body: object) -> object:
    if isinstance(body, dict) and len(body) > MAX_FIELDS:
        raise ValueError(f"{len(body)} fields, over {MAX_FIELDS}")
    return body


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number, and not whether something is so")
    return value


FEW = BeforeValidator(_few)
"""For a body, or a part of one."""
NUMBER = BeforeValidator(_no_truth)
"""For what JSON has as a number: Python would take true for 1."""
