"""Somebody who answers from a list, a mesh that answers from a value, and a machine to have."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from rich.console import Console, RenderableType

from tessella.cli.wizard.bodies import PreviewBody
from tessella.cli.wizard.machine import Machine
from tessella.cli.wizard.offers import Offer
from tessella.core.errors import BadConfig, ClaimTooSmall, PortInUse, TessellaError


class Script:
    """A talk whose answers are given beforehand; after the last one comes the end of input."""

    def __init__(self, answers: Iterable[str]) -> None:
        self._answers = deque(answers)
        self.asked: list[tuple[str, str]] = []
        """Questions, with their defaults."""
        self.said: list[str] = []
        self._console = Console(width=80)

    def title(self, text: str) -> None:
        self.said.append(text)

    def say(self, text: str) -> None:
        self.said.append(text)

    def show(self, what: RenderableType) -> None:
        with self._console.capture() as shown:
            self._console.print(what)
        self.said.append(what if isinstance(what, str) else shown.get())

    def ask(self, question: str, default: str = "") -> str:
        self.asked.append((question, default))
        if not self._answers:
            raise EOFError
        return self._answers.popleft() or default

    @property
    def left(self) -> int:
        """Answers that nobody asked for."""
        return len(self._answers)

    @property
    def text(self) -> str:
        """All that was said, a line each."""
        return "\n".join(self.said)

    def default_of(self, start: str) -> str:
        """The default of the last question that begins so."""
        return next(default for asked, default in reversed(self.asked) if asked.startswith(start))


@dataclass
class FakeDoor:
    """A mesh of fixed offers, where claims below `least` are refused."""

    known: list[Offer] = field(default_factory=list)
    preview_body: PreviewBody | None = None
    least: int = 0
    fails: list[TessellaError] = field(default_factory=list)
    """Raised in place of answers, one each."""
    previewed: list[tuple[str, int, str]] = field(default_factory=list)

    def offers(self, device: str) -> list[Offer]:
        self._fail()
        return self.known

    def offer(self, model: str, device: str) -> Offer:
        self._fail()
        return next((one for one in self.known if one.model == model), Offer(model=model))

    def preview(self, model: str, claim_mb: int, device: str) -> PreviewBody | None:
        self._fail()
        self.previewed.append((model, claim_mb, device))
        if claim_mb < self.least:
            raise ClaimTooSmall(f"a claim of {claim_mb} MB holds no layer here: {self.least} would")
        return self.preview_body

    def _fail(self) -> None:
        if self.fails:
            raise self.fails.pop(0)


def preview_body(start: int, stop: int, total: int = 30, *, replica: bool = False) -> PreviewBody:
    """What a claim would get."""
    plain = {
        "assignment": {"layer_ranges": [[start, stop]]},
        "total_layers": total,
        "is_replica": replica,
    }
    return PreviewBody.model_validate(plain)


def machine(
    devices: tuple[str, ...] = ("cpu",),
    memory: int | None = 4000,
    taken: Iterable[int] = (),
    notes: tuple[str, ...] = (),
) -> Machine:
    """A machine with this much free memory in MB, and these ports in use."""

    def check(port: int) -> None:
        if port in taken:
            raise PortInUse(f"port {port} is taken")
        if port < 1024:
            raise BadConfig(f"port {port} cannot be listened on")

    return Machine(devices, notes, lambda _: memory, check)


@pytest.fixture
def script() -> Callable[..., Script]:
    """Makes a talk of answers."""
    return lambda *answers: Script(answers)


@pytest.fixture
def fake_door() -> type[FakeDoor]:
    """Makes a mesh."""
    return FakeDoor


@pytest.fixture
def fake_machine() -> Callable[..., Machine]:
    """Makes a machine."""
    return machine


@pytest.fixture
def preview() -> Callable[..., PreviewBody]:
    """Makes an answer to a claim."""
    return preview_body
