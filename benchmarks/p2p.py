"""How fast bytes travel between two processes: our host beside libp2p as it comes.

    python benchmarks/p2p.py --json

1.2 kB there and back, 16 MiB one way, and opening a stream, over Noise and yamux on the loopback
interface. Each end is a process; both pairs run all the time and are measured in turns, so that
whatever else this machine does slows both. Exit 0 if ours are RATIO times as fast, else 1.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

if __name__ == "p2p":
    # Python looks beside a script first, and a script beside this one asked for our package.
    sys.path.remove(str(Path(__file__).parent))
    del sys.modules["p2p"]
    importlib.import_module("p2p")

SIDE = Path(__file__).with_name("p2p_side.py")
RATIO = 1.7
# Rounds of each measurement for each pair; the first only warms up.
ROUNDS = 5
MEASURES = ("rtt", "bulk", "open")


class End:
    """A process at one end of a connection."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SIDE), *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def hear(self) -> str:
        """The next line. Raises RuntimeError if the process ended instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args!r} ended")
        return line.strip()

    def say(self, line: str) -> None:
        """A line for the process."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


@contextmanager
def started(*args: str) -> Iterator[End]:
    """An end, until the context is left."""
    end = End(*args)
    try:
        yield end
    finally:
        end.process.kill()
        end.process.communicate()


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """The medians of each side."""
    found: dict[str, dict[str, list[float]]] = {"ours": {}, "stock": {}}
    with ExitStack() as stack:
        asking = {}
        for side in found:
            server = stack.enter_context(started(side, "serve"))
            asking[side] = stack.enter_context(started(side, "ask", server.hear()))
            asking[side].hear()
        for number in range(rounds):
            for name in MEASURES:
                for side, end in asking.items():
                    end.say(name)
                    for key, value in json.loads(end.hear()).items():
                        if number:
                            found[side].setdefault(key, []).append(value)
    return {
        side: {key: round(statistics.median(each), 1) for key, each in values.items()}
        for side, values in found.items()
    }


def ratios(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """How many times as fast ours are; time is better when it is less."""
    ours, stock = found["ours"], found["stock"]
    return {
        key: round(ours[key] / stock[key] if key == "bulk_mb_s" else stock[key] / ours[key], 2)
        for key in ours
    }


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true", dest="as_json")
    asked = parser.parse_args()
    found = measure(asked.rounds)
    times = ratios(found)
    if asked.as_json:
        print(json.dumps({**found, "ratio": times}))
    else:
        for key in times:
            print(f"{key:16} {found['ours'][key]:>10} {found['stock'][key]:>10} {times[key]:>6}x")
    return 0 if min(times["rtt_us_p50"], times["bulk_mb_s"]) >= RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
