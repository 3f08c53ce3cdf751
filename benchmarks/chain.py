"""What the network costs: a model on one node, on a chain of three, and in transformers.

    python benchmarks/chain.py --json
    python benchmarks/chain.py --json --gguf model.gguf --tokens 128 --rounds 9

Run it from a checkout that is installed with its `dev` extra, with the machine otherwise idle.
Without `--gguf` the default model is fetched. All is f32 and greedy, with one thread a process.

single, chain    decoded tokens a second at the client, which asks a node over libp2p on loopback
                 and counts from the first token to the last. Each mesh is one of its own, made of
                 the very processes that `tessella up` starts.
transformers     the same answer by a loop around the model, in a process of its own.
ratio            chain over single.
ttft_ms          from asking the chain to its first token, at the client.
hop_ms           what a token costs beside the arithmetic, by hop: its interval at the client, less
                 the seconds that the stages say they computed for it, over the number of hops (two
                 that carry hidden states and one that carries the token back).

The three take short turns, in rotation, so that whatever else the machine does slows them alike;
rates are medians over the rounds, and the first round only warms up. Exit 0 if chain and single
gave the tokens of transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import trio

from benchmarks.recorded_worker import RECORD_VARIABLE
from p2p.peers import Host
from tessella.catalogue import DEFAULT_MODEL, LocalModel
from tessella.cli.discovery import client_host
from tessella.cli.mesh import THREADS_VARIABLE, open_mesh
from tessella.cli.processes import Child, Program, open_children, python_program
from tessella.cli.pull import obtain
from tessella.cli.up import UpOptions, plan_mesh
from tessella.client import ask_peers, complete
from tessella.core.addresses import PeerAddress
from tessella.core.completions import CompletionRequest
from tessella.core.ids import ModelId
from tessella.core.messages import Begun, Delta
from tessella.core.peers import choose_entry
from tessella.core.sampling import Sampling
from tessella.core.shapes import DType

STAGES = 3
PROMPT = "The history of the city begins with a small settlement on the river. "
# Positions of a session: more than any answer here takes.
CONTEXT = 1024
TURN_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One answer as the client saw it."""

    tokens: list[int]
    first: float
    """Seconds from asking to the first token."""
    intervals: list[float]
    """Seconds between one token and the next."""

    @property
    def rate(self) -> float:
        """Decoded tokens a second."""
        return len(self.intervals) / sum(self.intervals)


@dataclass(kw_only=True)
class Runner:
    """A mesh that serves, and the turns it has had."""

    name: str
    model: ModelId
    musivum: PeerAddress
    turns: list[Turn] = field(default_factory=list)

    async def turn(self, host: Host, tokens: int) -> None:
        """One answer of so many tokens."""
        row = choose_entry(await ask_peers(host, self.musivum))
        sampling = Sampling(max_tokens=tokens, ignore_eos=True)
        request = CompletionRequest(model=self.model, prompt=PROMPT, sampling=sampling)
        ids: list[int] = []
        arrived = [time.perf_counter()]
        async for event in complete(host, PeerAddress(row.peer_id, row.addrs), request):
            if isinstance(event, Delta):
                ids.append(event.token_id)
                arrived.append(time.perf_counter())
            elif isinstance(event, Begun):
                print(f"{self.name}: {len(event.chain)} stages", file=sys.stderr)
        gaps = [after - before for before, after in pairwise(arrived)]
        self.turns.append(Turn(tokens=ids, first=gaps[0], intervals=gaps[1:]))


@asynccontextmanager
async def mesh_of(workers: int, model: LocalModel, directory: Path) -> AsyncIterator[Runner]:
    """A mesh of recorded workers, for as long as the context lasts."""
    options = UpOptions(
        model=model.name,
        workers=workers,
        claims=(),
        directory=directory,
        context=CONTEXT,
        slots=1,
        device="cpu",
        dtype=DType.F32,
        prompt=None,
        as_json=True,
    )
    plan = await trio.to_thread.run_sync(plan_mesh, options, model)
    os.environ[RECORD_VARIABLE] = str(directory)
    async with open_mesh(plan, lambda _, event: None) as mesh:
        yield Runner(name=f"{workers} workers", model=model.name, musivum=mesh.musivum)


def recorded_program(module: str, *args: str) -> list[str]:
    """`python_program`, with workers that write down their steps."""
    worker = module == "tessella.cli.worker"
    return python_program("benchmarks.recorded_worker" if worker else module, *args)


@dataclass(kw_only=True)
class Reference:
    """transformers, and the turns it has had."""

    child: Child
    rates: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    async def turn(self) -> None:
        """One answer."""
        await self.child.say_go()
        event = await self.child.wait_for(f"turn-{len(self.rates)}", TURN_SECONDS)
        self.rates.append(event["tok_s"])
        self.tokens = event["tokens"]


@asynccontextmanager
async def open_reference(path: Path, tokens: int, directory: Path) -> AsyncIterator[Reference]:
    """transformers in a process of its own, for as long as the context lasts."""
    argv = python_program("benchmarks.chain_reference", str(path), str(tokens), PROMPT)
    async with open_children(directory, lambda name, event: None) as children:
        child = await children.start(Program(name="transformers", argv=argv, env=os.environ))
        await child.wait_for("ready", TURN_SECONDS)
        yield Reference(child=child)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What is printed. Rates are tokens a second."""

    single_tok_s: float
    chain_tok_s: float
    ratio: float
    transformers_tok_s: float
    single_to_transformers: float
    ttft_ms: float
    hop_ms_p50: float
    hop_ms_p99: float
    compute_ms_p50: float
    """Milliseconds that the stages of the chain compute for a token, together."""
    single_compute_ms_p50: float
    """The same where one node holds all layers."""
    same_tokens: bool
    tokens: int
    rounds: int


async def measure(gguf: Path | None, tokens: int, rounds: int) -> Report:
    """Start all three, take turns, end them, and put together what they recorded."""
    name = str(gguf) if gguf else DEFAULT_MODEL
    model = await obtain(name, lambda text: print(text, file=sys.stderr))
    with tempfile.TemporaryDirectory() as folder:
        chained, alone = Path(folder) / "chain", Path(folder) / "single"
        async with (
            mesh_of(STAGES, model, chained) as chain,
            mesh_of(1, model, alone) as single,
            open_reference(model.path, tokens, alone) as theirs,
            client_host() as host,
        ):
            for _ in range(rounds + 1):
                await single.turn(host, tokens)
                await chain.turn(host, tokens)
                await theirs.turn()
        return report(chain.turns, single.turns, theirs, (computed(chained), computed(alone)))


def computed(directory: Path) -> list[float]:
    """Seconds that the nodes of a mesh computed for each token of each turn, together."""
    steps = [json.loads(path.read_text()) for path in directory.glob("*.json")]
    return [sum(each) for each in zip(*steps, strict=True)]


def report(
    chain: Sequence[Turn],
    single: Sequence[Turn],
    theirs: Reference,
    steps: tuple[list[float], list[float]],
) -> Report:
    """The figures of all rounds but the first. `steps` are those of the chain, and of single."""
    intervals = [gap for turn in chain for gap in turn.intervals]
    warm = len(chain[0].intervals)
    gaps = zip(intervals, steps[0], strict=True)
    hops = [(gap - work) * 1000 / STAGES for gap, work in gaps][warm:]
    single_rate = statistics.median(turn.rate for turn in single[1:])
    chain_rate = statistics.median(turn.rate for turn in chain[1:])
    their_rate = statistics.median(theirs.rates[1:])
    return Report(
        single_tok_s=round(single_rate, 2),
        chain_tok_s=round(chain_rate, 2),
        ratio=round(chain_rate / single_rate, 3),
        transformers_tok_s=round(their_rate, 2),
        single_to_transformers=round(single_rate / their_rate, 3),
        ttft_ms=round(statistics.median(turn.first for turn in chain[1:]) * 1000, 1),
        hop_ms_p50=round(statistics.median(hops), 3),
        hop_ms_p99=round(statistics.quantiles(hops, n=100)[-1], 3),
        compute_ms_p50=round(statistics.median(steps[0][warm:]) * 1000, 3),
        single_compute_ms_p50=round(statistics.median(steps[1][warm:]) * 1000, 3),
        same_tokens=all(turn.tokens == theirs.tokens for turn in (*chain, *single)),
        tokens=warm + 1,
        rounds=len(chain) - 1,
    )


def main() -> int:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gguf", type=Path, help="the model [default: fetched]")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each that count")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    asked = parser.parse_args()
    if asked.tokens < 3 or asked.rounds < 1:
        parser.error("at least 3 tokens and 1 round")
    os.environ[THREADS_VARIABLE] = "1"
    with patch("tessella.cli.mesh.python_program", recorded_program):
        found = trio.run(measure, asked.gguf, asked.tokens, asked.rounds)
    if asked.json:
        print(json.dumps(asdict(found)))
    else:
        for key, value in asdict(found).items():
            print(f"{key:24} {value}")
    return 0 if found.same_tokens else 1


if __name__ == "__main__":
    sys.exit(main())
