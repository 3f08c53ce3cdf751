"""Whether every proof is paid once, however often workers and musivum are killed.

    python benchmarks/settlement_chaos.py --runs 200 --seed 1
    python benchmarks/settlement_chaos.py --runs 200 --seed 1 --json

A musivum as it is and three workers that serve, prove and upload without a pause. In each run some
of them are killed with SIGKILL and started again: musivum, workers, or both in the same moment,
at a random time or at a random point of settlement. The seed decides who, how and when, as far as
that is ours to decide. After the last run all of them finish, and books and ledger are compared.

kills       processes that ended by SIGKILL
proofs      that workers wrote down, and so are owed
lost        of these, those without a payment
double      payments of what was paid before
chain_ok    whether the entries are a chain whose sums are the balances, and all of it is in the
            amounts that the books say

Exit 0 if nothing is lost or paid twice and the chain is whole, else 1.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from benchmarks.settlement_chaos_side import LAST, STAGES, worker_of
from tests.mesh.restarts.musivum_program import a_musivum
from tests.mesh.settlement.accounts import Compared, compare, read_book, read_paid
from tests.mesh.settlement.forked import Forked, Forker, open_forker, until
from tests.mesh.settlement.points import MUSIVUM, MUSIVUM_POINTS, WORKER_POINTS, Trap

SIDE = "benchmarks.settlement_chaos_side"
# From when all of them live and proofs are paid, until somebody dies.
LIFE_SECONDS = (0.0, 0.3)
PAYS_SECONDS = 30.0
# Musivum may be away for as long, or a worker.
AWAY_SECONDS = (0.0, 0.2)
# Until a point is reached; after it who was to die is killed wherever it is.
POINT_SECONDS = 2.0
FINISH_SECONDS = 300.0


@dataclass
class Chaos:
    """A mesh in which somebody always dies."""

    musivum: Forked
    workers: list[Forked]
    chance: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    """Of `musivum` and `worker`, and of points that were reached."""
    both: int = 0
    """Runs in which musivum died with a worker."""

    @property
    def books(self) -> list[Path]:
        """The workers' books."""
        return [worker.home / "node.proofs.db" for worker in self.workers]

    async def start(self) -> None:
        """All of them."""
        for program in (self.musivum, *self.workers):
            await program.restart()

    async def run(self) -> None:
        """Some die, and live again."""
        chance = self.chance
        dying = chance.choice(
            [[self.musivum], [chance.choice(self.workers)], [self.musivum, *self._some()]]
        )
        self.both += len(dying) > 1
        await self._pays_again()
        points = [self._trap(program) if chance.random() < 0.5 else "" for program in dying]
        await trio.sleep(chance.uniform(*LIFE_SECONDS))
        for program, point in zip(dying, points, strict=True):
            if point and await self._dies(program):
                self.kills[point] += 1
        # In the same moment, but for those that are dead already.
        for program in dying:
            assert program.process is not None
            program.process.kill()
        for program in dying:
            status = program.end()
            if status != -signal.SIGKILL:
                raise SystemExit(f"{program.home.name} ended with {status}: {program.errors}")
            self.kills["musivum" if program is self.musivum else "worker"] += 1
            (program.home / "dies-at").unlink(missing_ok=True)
        chance.shuffle(dying)
        for program in dying:
            await trio.sleep(chance.uniform(*AWAY_SECONDS))
            program.start()
        for program in dying:
            await program.told("ready")

    async def _pays_again(self) -> None:
        """Return when a worker heard of another payment: who comes back has a lot to say."""
        before = self._paid()
        if not await until(lambda: self._paid() > before, PAYS_SECONDS):
            raise SystemExit(f"nothing was paid for {PAYS_SECONDS:g} s")

    def _paid(self) -> int:
        return sum(read_paid(book) for book in self.books)

    def _some(self) -> list[Forked]:
        return self.chance.sample(self.workers, self.chance.randint(1, STAGES))

    def _trap(self, program: Forked) -> str:
        points = MUSIVUM_POINTS if program is self.musivum else WORKER_POINTS
        point = self.chance.choice(points)
        paid = worker_of(self.chance.randrange(STAGES)).peer_id
        Trap(program.home).set(point, paid if program is self.musivum else "")
        return point

    async def _dies(self, program: Forked) -> bool:
        return await until(lambda: not program.is_running, POINT_SECONDS)

    async def finish(self) -> None:
        """All workers come to the same request, and all is settled."""
        last = max(len(read_book(book)) for book in self.books) + 1
        for worker in self.workers:
            (worker.home / LAST).write_text(f"{last}")
        await until(
            lambda: not any(self._is_open(book, last) for book in self.books), FINISH_SECONDS
        )

    def _is_open(self, book: Path, last: int) -> bool:
        rows = read_book(book)
        return len(rows) < last or any(row.state in ("new", "waiting") for row in rows)


@contextmanager
def a_chaos(directory: Path, forker: Forker, seed: int) -> Iterator[Chaos]:
    """One, whose programs end with the context."""
    planned = a_musivum(directory / "musivum", "")
    musivum = Forked(MUSIVUM, planned.args, planned.home, forker=forker)
    (place,) = planned.address.full()
    args = ["--musivum", place, "--key", str(musivum.home / "musivum.key")]
    args += ["--issued-at", f"{time.time()}"]
    workers = [
        Forked(SIDE, ("--place", f"{number}", "--home", str(home), *args), home, forker=forker)
        for number, home in ((k, directory / f"worker-{k}") for k in range(STAGES))
    ]
    chaos = Chaos(musivum, workers, random.Random(seed))
    try:
        yield chaos
    finally:
        for program in (*workers, musivum):
            if program.process is not None:
                program.end()


@dataclass
class Result:
    """What came of it."""

    runs: int
    seed: int
    kills: int
    both: int
    points: int
    """Kills at a point of settlement that was chosen."""
    proofs: int
    paid: int
    lost: int
    double: int
    chain_ok: int
    wrong: list[str]
    wall_s: float

    @property
    def line(self) -> str:
        """For people."""
        said = " ".join(f"{name}={value}" for name, value in vars(self).items() if name != "wrong")
        return f"chaos {said}"


def measure(runs: int, seed: int, directory: Path) -> Result:
    """So many runs, in a directory that is empty. Raises BadLedger where the chain is broken."""
    began = time.monotonic()
    with open_forker(directory) as forker, a_chaos(directory, forker, seed) as chaos:

        async def all_runs() -> None:
            await chaos.start()
            for _ in range(runs):
                await chaos.run()
            await chaos.finish()

        trio.run(all_runs)
        address = json.loads((chaos.musivum.home / f"life-{chaos.musivum.lives}.out").read_text())
    found = compare(chaos.books, directory / "musivum" / "musivum.db", address["peer_id"])
    return _result(chaos, found, runs, seed, time.monotonic() - began)


def _result(chaos: Chaos, found: Compared, runs: int, seed: int, wall: float) -> Result:
    wrong = [*found.wrong, *["a payment of what no book has"] * found.unserved]
    if found.full_micro != found.micro:
        wrong.append(f"{found.micro} was paid, {found.full_micro} was earned")
    return Result(
        runs=runs,
        seed=seed,
        kills=chaos.kills["musivum"] + chaos.kills["worker"],
        both=chaos.both,
        points=sum(chaos.kills[point] for point in (*WORKER_POINTS, *MUSIVUM_POINTS)),
        proofs=found.served,
        paid=found.paid,
        lost=found.lost,
        double=found.double,
        chain_ok=int(found.is_whole and not wrong),
        wrong=wrong,
        wall_s=round(wall, 1),
    )


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        result = measure(options.runs, options.seed, Path(directory))
    print(json.dumps(vars(result)) if options.json else result.line)
    for each in result.wrong:
        print(each, file=sys.stderr)
    return int(not (result.lost == result.double == 0 and result.chain_ok))


if __name__ == "__main__":
    sys.exit(main())
