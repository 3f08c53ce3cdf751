"""Whether audits tell honest nodes from others: false alarms, and cheats that were caught.

    python benchmarks/audits.py --json
    python benchmarks/audits.py --gguf model.gguf --prompts 16

Every prompt is audited over ranges of one layer and of ten, by its output rows and, apart from
that, by its sketch alone. The auditor computes in f32; workers compute in f32, f16 and bf16, with
the positions cut in other ways than its own, and send f32, f16 and bf16: nine classes for the
weights of the file, and nine for the same in q8_0. Each cheat is tried under the class of each
dtype. Without `--gguf` the default model is fetched, once.

Exit 0 if no honest node was rejected or accused, and each cheat was caught in nine audits of ten,
but for q8_0 declared bf16, which errs no more in one audit than an honest node may.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import trio
from gguf import GGMLQuantizationType
from torch import Tensor

from benchmarks.audited_nodes import Inputs, Node, prompts, requantised
from tessella.catalogue import DEFAULT_MODEL
from tessella.cli.pull import obtain
from tessella.core.audits import (
    Measured,
    Verdict,
    accuses,
    gain_of,
    judge,
    sketch_tolerance,
)
from tessella.core.layers import LayerRange
from tessella.core.numeric import NumericClass, tolerances
from tessella.core.shapes import DType
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.device import limit_threads, torch_dtype
from tessella.engine.recompute import measure, recompute, weights_of
from tessella.engine.sketch import compare, sketch
from tessella.engine.weights import open_checkpoint

CANARY_KEY = b"a key of this benchmark"
# Positions that a worker runs at a time, by the number of the prompt: at once, in chunks, by one.
PIECES = (512, 16, 512, 5, 512, 16, 512, 1)
CAUGHT = 0.9
UNSEEN = "q8_0 declared bf16"


@dataclass
class Tally:
    """Audits of one kind, by rows and by sketches."""

    audits: int = 0
    tokens: int = 0
    rejected: int = 0
    sketches: int = 0
    sketches_rejected: int = 0
    nearest: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """The most of each limit that was used: of the median, the token and the gain."""
    accused: int = 0
    gain_error: float = 0.0

    def audit(
        self, output: Tensor, reference: Tensor, klass: NumericClass, layers: int
    ) -> Measured:
        """Judge rows as they leave a worker, and their sketch."""
        sent = output.to(torch_dtype(klass.wire))
        found = measure(sent, reference)
        self.audits += 1
        self.tokens += found.tokens
        self.rejected += judge(found, klass, layers).verdict is not Verdict.PASSED
        allowed = tolerances(klass)
        used = (
            found.median / allowed.median_of(layers),
            found.worst / allowed.token,
            abs(found.gain - 1.0) / allowed.gain,
        )
        self.nearest = [max(pair) for pair in zip(self.nearest, used, strict=True)]
        by_sketch = compare(sketch(sent, 0), reference, 0)
        if by_sketch is not None:
            wide = sketch_tolerance(allowed, layers)
            self.sketches += 1
            judged = judge(by_sketch, klass, layers, wide)
            self.sketches_rejected += judged.verdict is not Verdict.PASSED
        return found


@dataclass(frozen=True)
class Work:
    """One range of one prompt, as a worker that may cheat sees it."""

    source: Tensor
    before: Tensor
    """Before the last layer of the range."""
    output: Tensor
    other: Tensor
    """The output for another prompt."""


def _zeroed(rows: Tensor) -> Tensor:
    rows = rows.clone()
    rows[:, :8] = 0.0
    return rows


def _stale(rows: Tensor) -> Tensor:
    rows = rows.clone()
    rows[len(rows) // 2] = rows[len(rows) // 2 - 1]
    return rows


CHEATS: dict[str, Callable[[Work], Tensor]] = {
    "echo": lambda work: work.source,
    "scale 1.01": lambda work: work.output.float() * 1.01,
    "scale 1.05": lambda work: work.output.float() * 1.05,
    "skipped layer": lambda work: work.before,
    "other prompt": lambda work: work.other,
    "8 channels zeroed": lambda work: _zeroed(work.output),
    "one stale token": lambda work: _stale(work.output),
}


@dataclass
class Report:
    """What is printed."""

    model: str
    prompts: int
    tokens_each: int
    auditor_error: float = 0.0
    """The worst token of `recompute` beside the reference that stands in for it here."""
    honest: dict[str, Tally] = field(default_factory=dict)
    """By class."""
    cheats: dict[str, dict[str, Tally]] = field(default_factory=dict)
    """By name, then by the class that was declared."""
    copier: Tally = field(default_factory=Tally)
    seconds: float = 0.0

    def cheat(self, name: str, klass: NumericClass) -> Tally:
        """The tally of one cheat under one class."""
        return self.cheats.setdefault(name, {}).setdefault(str(klass), Tally())


def ranges_of(layers: int) -> tuple[list[LayerRange], list[LayerRange]]:
    """Ranges of one layer and of a third, for prompts of even and of odd numbers."""
    third = layers // 3
    one = [LayerRange(at, at + 1) for at in (layers // 6, layers // 2, layers - 1)]
    ten = [LayerRange(0, third), LayerRange(third, 2 * third), LayerRange(2 * third, layers)]
    return [one[0], ten[0], ten[2]], [one[1], one[2], ten[1]]


class Bench:
    """The nodes of one set of weights, and what they are asked."""

    def __init__(self, checkpoint: Checkpoint, report: Report, ids: list[list[int]]) -> None:
        self.report = report
        self._checkpoint = checkpoint
        self._ids = ids
        self._word = weights_of(checkpoint, checkpoint.shape.whole)
        self._reference = Node(checkpoint, DType.F32)
        self._inputs = Inputs(checkpoint, self._reference)
        self._ranges = ranges_of(checkpoint.shape.layers)
        self._nodes = {
            dtype: self._reference if dtype is DType.F32 else Node(checkpoint, dtype)
            for dtype in DType
        }

    def check_auditor(self) -> None:
        """Hold the reference to what an auditor would really run, on one prompt."""
        ids, layers = self._ids[0], self._ranges[0][1]
        _, ours = self._reference.run(self._inputs.of(ids, [layers])[layers], layers, len(ids))
        theirs = recompute(self._checkpoint, layers, ids, lambda: None)
        self.report.auditor_error = measure(ours, theirs).worst

    def run(self, cheating: dict[str, Node] | None = None) -> None:
        """Every prompt over its ranges; with the nodes of other weights, cheats as well."""
        earlier: dict[tuple[DType, LayerRange], Tensor] = {}
        for number, ids in enumerate(self._ids):
            ranges = self._ranges[number % 2]
            for layers, source in self._inputs.of(ids, ranges).items():
                _, reference = self._reference.run(source, layers, len(ids))
                outputs = {}
                for dtype, node in self._nodes.items():
                    before, output = node.run(source, layers, PIECES[number % len(PIECES)])
                    outputs[dtype] = output
                    self._honest(output, reference, dtype, layers, number)
                    other = earlier.get((dtype, layers))
                    if cheating is not None and other is not None:
                        work = Work(source, before, output, other)
                        self._cheat(work, reference, dtype, layers)
                    earlier[dtype, layers] = output
                if cheating is not None:
                    coarse = {
                        name: node.run(source, layers, 16)[1] for name, node in cheating.items()
                    }
                    self._misdeclare(outputs, coarse, reference, layers)
            if number % 8 == 7:
                print(f"{self._word}: {number + 1} prompts", file=sys.stderr)

    def _class(self, compute: DType, wire: DType) -> NumericClass:
        return NumericClass(compute, self._word, wire)

    def _honest(
        self, output: Tensor, reference: Tensor, compute: DType, layers: LayerRange, number: int
    ) -> None:
        """One node under its three classes; and the mark of a canary that it may have copied."""
        gain = gain_of(CANARY_KEY, f"{number} {layers}".encode())
        for wire in DType:
            klass = self._class(compute, wire)
            tally = self.report.honest.setdefault(str(klass), Tally())
            found = tally.audit(output, reference, klass, len(layers))
            tally.accused += accuses(found.gain, gain)
            tally.gain_error = max(tally.gain_error, abs(found.gain - 1.0))
            copier = self.report.copier
            copied = measure((output.float() * gain).to(torch_dtype(wire)), reference)
            copier.audits += 1
            copier.accused += accuses(copied.gain, gain)
            copier.gain_error = max(copier.gain_error, abs(copied.gain - gain))

    def _cheat(self, work: Work, reference: Tensor, dtype: DType, layers: LayerRange) -> None:
        klass = self._class(dtype, dtype)
        for name, cheat in CHEATS.items():
            self.report.cheat(name, klass).audit(cheat(work), reference, klass, len(layers))

    def _misdeclare(
        self,
        outputs: dict[DType, Tensor],
        coarse: dict[str, Tensor],
        reference: Tensor,
        layers: LayerRange,
    ) -> None:
        """What is computed or held more coarsely than is said, and sent as is said."""
        said = [
            ("f16 declared f32", outputs[DType.F16], DType.F32),
            ("bf16 declared f32", outputs[DType.BF16], DType.F32),
            ("bf16 declared f16", outputs[DType.BF16], DType.F16),
        ]
        said += [
            (f"{word} declared {dtype.value}", output, dtype)
            for word, output in coarse.items()
            for dtype in (DType.F32, DType.BF16)
        ]
        for name, output, dtype in said:
            klass = self._class(dtype, dtype)
            self.report.cheat(name, klass).audit(output, reference, klass, len(layers))


@contextmanager
def opened(path: Path) -> Iterator[Checkpoint]:
    """A checkpoint for as long as the context lasts."""
    checkpoint = open_checkpoint(path)
    try:
        yield checkpoint
    finally:
        checkpoint.close()


def run(path: Path, count: int, tokens: int) -> Report:
    """Both sets of weights, one after the other."""
    started = time.perf_counter()
    report = Report(path.stem, count, tokens)
    with tempfile.TemporaryDirectory() as folder, opened(path) as checkpoint:
        ids = prompts(checkpoint, count, tokens)
        finer, coarser = Path(folder) / "q8_0.gguf", Path(folder) / "q4_0.gguf"
        requantised(path, finer, GGMLQuantizationType.Q8_0)
        requantised(path, coarser, GGMLQuantizationType.Q4_0)
        with opened(finer) as q8, opened(coarser) as q4:
            bench = Bench(checkpoint, report, ids)
            bench.check_auditor()
            bench.run({"q4_0": Node(q4, DType.F32), "q8_0": Node(q8, DType.F32)})
            del bench
            Bench(q8, report, ids).run()
    report.seconds = round(time.perf_counter() - started, 1)
    return report


def summary(report: Report) -> dict[str, object]:
    """The sums over all honest classes."""
    honest = report.honest.values()
    return {
        "classes": len(report.honest),
        "audits": sum(tally.audits for tally in honest),
        "tokens": sum(tally.tokens for tally in honest),
        "false_alarms": sum(tally.rejected for tally in honest),
        "sketches": sum(tally.sketches for tally in honest),
        "sketch_false_alarms": sum(tally.sketches_rejected for tally in honest),
        "false_accusations": sum(tally.accused for tally in honest),
    }


def passed(report: Report) -> bool:
    """No alarm without a reason, and next to no cheat without an alarm."""
    caught = all(
        tally.rejected >= CAUGHT * tally.audits
        for name, classes in report.cheats.items()
        for tally in classes.values()
        if name != UNSEEN
    )
    sums = summary(report)
    alarms = ("false_alarms", "sketch_false_alarms", "false_accusations")
    return caught and not any(sums[key] for key in alarms)


def print_table(report: Report) -> None:
    """For people."""
    for key, value in summary(report).items():
        print(f"{key:20} {value}")
    print(
        f"\n{'honest class':20} {'audits':>7} {'alarms':>7} {'sketch':>7}  most of each limit used"
    )
    for name, tally in report.honest.items():
        used = " ".join(f"{each:8.3f}" for each in tally.nearest)
        print(f"{name:20} {tally.audits:7} {tally.rejected:7} {tally.sketches_rejected:7}  {used}")
    print(f"\n{'cheat':22} {'declared':18} {'audits':>7} {'rejected':>9} {'by sketch':>12}")
    for name, classes in report.cheats.items():
        for klass, tally in classes.items():
            sketched = f"{tally.sketches_rejected} of {tally.sketches}"
            print(f"{name:22} {klass:18} {tally.audits:7} {tally.rejected:9} {sketched:>12}")
    copier = report.copier
    print(f"\ncopiers accused      {copier.accused} of {copier.audits}")
    print(f"worst copied gain    {copier.gain_error:.2g} from the mark")
    honest = [tally.gain_error for tally in report.honest.values()]
    print(
        f"worst honest gain    {max(honest):.2g} from 1, of a class {statistics.median(honest):.2g}"
    )
    print(f"auditor's own error  {report.auditor_error:.2g}")
    print(f"seconds              {report.seconds}")


def main() -> int:
    """Parse, audit, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gguf", type=Path, help="a model instead of the default one")
    parser.add_argument("--prompts", type=int, default=64, choices=range(2, 65), metavar="2..64")
    parser.add_argument("--tokens", type=int, default=48, help="of each prompt")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args()
    limit_threads(1)
    path = asked.gguf
    if path is None:
        path = trio.run(obtain, DEFAULT_MODEL, lambda text: print(text, file=sys.stderr)).path
    with torch.inference_mode():
        report = run(path, asked.prompts, asked.tokens)
    if asked.json:
        print(json.dumps({"sums": summary(report), "passed": passed(report)} | asdict(report)))
    else:
        print_table(report)
    return 0 if passed(report) else 1


if __name__ == "__main__":
    sys.exit(main())
