"""A `tessella-worker` that also writes down how long each of its decode steps computed.

`chain.py` starts it in place of the command. When the node ends, the seconds of all its steps, in
order, are in the file that RECORD names, as a JSON array.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

from tessella.cli import worker
from tessella.worker.counters import Counters

RECORD_VARIABLE = "RECORD"


def run() -> NoReturn:
    """The program. It takes the arguments of `tessella-worker`."""
    steps: list[float] = []
    count = Counters.computed

    def computed(counters: Counters, positions: int, seconds: float) -> None:
        if positions == 1:
            steps.append(seconds)
        count(counters, positions, seconds)

    try:
        with patch.object(Counters, "computed", computed):
            worker.run()
    finally:
        path = Path(os.environ[RECORD_VARIABLE]) / f"{os.getpid()}.json"
        path.write_text(json.dumps(steps))
