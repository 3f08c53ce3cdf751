"""Whether a grammar is one that we dare to compile, found out by a process that may die of it.

The library that compiles cannot be stopped from outside, and some grammars of a few hundred bytes
take minutes, gigabytes, or more stack than there is, which would end the node. So each is compiled
first in a process of its own, over a vocabulary of bytes, with its CPU time and memory limited.
What passes there compiles here in about the same time: milliseconds, as a rule.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tessella.core.errors import BadRequest, Busy, LocalError

# llguidance's own limits: its defaults, but where a reason is given.
LIMITS: dict[str, Any] = {
    # Alternatives at one place. A schema of 64 KiB can have some 4,000 optional properties.
    "max_items_in_row": 10_000,
    # A state is one to two kB and the default is 250,000: half a gigabyte a session.
    "max_lexer_states": 50_000,
    # The library's errors would else come with the whole grammar.
    "verbose_errors": False,
}
# CPU seconds. The largest schema that fits a request takes a quarter of one.
TRIAL_SECONDS = 2
# Bytes of address space, of which the interpreter takes a quarter.
TRIAL_BYTES = 512 * 1024 * 1024
# Seconds on the wall for a trial, and for a place to run it, on a machine that is busy.
WALL_SECONDS = 10.0
# At once, for all sessions of a node.
MAX_TRIALS = 2
# Characters of the library's complaint that are told.
MAX_COMPLAINT_CHARS = 300

_PLAINER = {
    "NoExtensionBias": "no text fits the grammar",
    "panic": "the grammar is not one that can be compiled",
}
_PROGRAM = Path(__file__).with_name("grammar_child.py")
_UNCAUGHT = 1  # how Python ends by an exception, on every system
_places = threading.BoundedSemaphore(MAX_TRIALS)


def try_grammar(definition: str, tokens: int) -> str:
    """What is wrong with a grammar in llguidance's JSON, in one line; "" if it may be compiled.

    `tokens` is the size of the vocabulary. Blocks for a tenth of a second, and for twice
    WALL_SECONDS at most. Raises Busy where the machine has no time for it.
    """
    if not _places.acquire(timeout=WALL_SECONDS):
        raise Busy("too many grammars are being compiled")
    try:
        return _run(definition, tokens)
    finally:
        _places.release()


def refusal(complaint: str) -> BadRequest:
    """The error for what the library complains of: in one line, which names the culprit."""
    line = " ".join(complaint.split())
    for sign, words in _PLAINER.items():
        if line.startswith(sign):
            line = words
    return BadRequest(f"response_format: {line[:MAX_COMPLAINT_CHARS]}")


def _run(definition: str, tokens: int) -> str:
    asked = {
        "definition": definition,
        "tokens": tokens,
        "limits": LIMITS,
        "seconds": TRIAL_SECONDS,
        "memory": TRIAL_BYTES,
    }
    too_much = (
        f"the grammar takes over {TRIAL_SECONDS} s or {TRIAL_BYTES >> 20} MiB to compile,"
        " or is nested too deeply"
    )
    try:
        ended = subprocess.run(
            [sys.executable, "-I", str(_PROGRAM)],
            input=json.dumps(asked).encode(),
            capture_output=True,
            timeout=WALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        # Its CPU time was not up: it hardly had any.
        raise Busy(f"no grammar is compiled within {WALL_SECONDS:g} s here now") from exc
    if ended.returncode == _UNCAUGHT:
        said = ended.stderr.decode(errors="replace").strip().splitlines()
        if said and said[-1].startswith("MemoryError"):
            return too_much
        raise LocalError(f"the trial of a grammar failed: {said[-1] if said else 'in silence'}")
    if ended.returncode:
        return too_much
    complaint: str = json.loads(ended.stdout)
    return complaint
