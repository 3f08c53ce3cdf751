"""Programs that this one starts, that tell their life in JSON lines, and that never outlive it.

A child ends when its standard input closes. So it ends with us however we end, SIGKILL included;
and when we may still act, whoever does not end by that is sent SIGTERM, then SIGKILL. A child has
a session of its own: the Ctrl-C of our terminal is ours to act on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import trio

import tessella
from tessella.cli.failure import ProcessDied
from tessella.cli.render import Document
from tessella.core.errors import BadConfig
from tessella.core.exits import EXIT_RETRY
from tessella.core.text import one_line

GO = b"go\n"
# From a closed stdin to SIGTERM: more than a goodbye to musivum and the closing of a host take.
END_SECONDS = 6.0
# From SIGTERM to SIGKILL.
TERM_SECONDS = 3.0
# Events are short; a line that goes on is none.
MAX_LINE_BYTES = 64 * 1024
LOG_TAIL_BYTES = 4096
LOG_TAIL_LINES = 5

Tell = Callable[[str, Document], None]
"""Takes the name of a child, and an event of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to start."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    last: bool = False
    """Whether it is ended after the others, who may have something to tell it."""


def python_program(module: str, *args: str) -> list[str]:
    """The command line of a module's `run`, in this Python, whatever the directory holds.

    Nothing of the current directory is imported; our own packages are found where we found them.
    """
    root = str(Path(tessella.__file__).parents[1])
    start = f"import sys; sys.path.append({root!r}); from {module} import run; run()"
    return [sys.executable, "-P", "-c", start, *args]


class Child:
    """One program that runs. `Children.start` makes it."""

    def __init__(self, program: Program, process: trio.Process, log: Path) -> None:
        self.program = program
        self.process = process
        self.log = log
        self._seen: dict[str, Document] = {}
        self._changed = trio.Event()

    @property
    def spoke(self) -> bool:
        """Whether it has come as far as an event: before, it has nobody to say goodbye to."""
        return bool(self._seen)

    def take(self, event: Document) -> None:
        """Keep an event as the latest of its kind, and wake who waits for it."""
        self._seen[str(event.get("event"))] = event
        self._changed.set()
        self._changed = trio.Event()

    async def say_go(self) -> None:
        """Send the line that a program waits for; one that died is mourned elsewhere."""
        if self.process.stdin is not None:
            with suppress(trio.BrokenResourceError):
                await self.process.stdin.send_all(GO)

    async def wait_for(self, kind: str, silence: float) -> Document:
        """The event of that kind. Raises ProcessDied after `silence` seconds without any event."""
        while kind not in self._seen:
            with trio.move_on_after(silence) as scope:
                await self._changed.wait()
            if scope.cancelled_caught:
                raise ProcessDied(
                    f"{self.program.name} said nothing for {silence:g} s before it was {kind}; "
                    f"its log is {self.log}",
                    retry=True,
                    log=log_tail(self.log),
                )
        return self._seen[kind]


class Children:
    """All programs that run. `open_children` makes it, and ends them."""

    def __init__(self, nursery: trio.Nursery, logs: Path, tell: Tell) -> None:
        self._nursery = nursery
        self._logs = logs
        self._tell = tell
        self._running: list[Child] = []
        self._ending = False

    async def start(self, program: Program) -> Child:
        """Start a program; its stderr goes to a log of its name. Raises BadConfig."""
        log = self._logs / f"{program.name}.log"
        try:
            with log.open("wb") as stderr:
                process = await trio.lowlevel.open_process(
                    list(program.argv),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    env=dict(program.env),
                    start_new_session=True,
                )
        except OSError as exc:
            raise BadConfig(f"cannot start {program.name} with the log {log}: {exc}") from exc
        child = Child(program, process, log)
        self._running.append(child)
        self._nursery.start_soon(self._listen, child)
        self._nursery.start_soon(self._mourn, child)
        return child

    async def _listen(self, child: Child) -> None:
        if child.process.stdout is None:
            return
        pending = b""
        async for data in child.process.stdout:
            *lines, pending = (pending + data).split(b"\n")
            pending = pending[-MAX_LINE_BYTES:]
            for line in lines:
                if (event := parse_event(line)) is not None:
                    child.take(event)
                    self._tell(child.program.name, event)

    async def _mourn(self, child: Child) -> None:
        status = await child.process.wait()
        if self._ending:
            return
        log = log_tail(child.log)
        name, said = child.program.name, f": {log[-1]}" if log else ""
        raise ProcessDied(
            f"{name} ended with status {status}{said} (its log is {child.log})",
            retry=status == EXIT_RETRY,
            log=log[:-1],
        )

    async def end(self) -> None:
        """End all of them, in bounded time."""
        self._ending = True
        with trio.CancelScope(shield=True):
            for last in (False, True):
                await _end_all([one for one in self._running if one.program.last == last])


@asynccontextmanager
async def open_children(logs: Path, tell: Tell) -> AsyncIterator[Children]:
    """Programs for as long as the context lasts; none runs after it.

    If one ends by itself the body is cancelled, and ProcessDied names it and its last words.
    """
    async with trio.open_nursery() as nursery:
        children = Children(nursery, logs, tell)
        try:
            yield children
        finally:
            await children.end()
        nursery.cancel_scope.cancel()


async def _end_all(children: Sequence[Child]) -> None:
    for child in children:
        if child.process.stdin is not None:
            await child.process.stdin.aclose()
        if not child.spoke:
            child.process.terminate()
    if not await _ended(children, END_SECONDS):
        for child in children:
            child.process.terminate()
        if not await _ended(children, TERM_SECONDS):
            for child in children:
                child.process.kill()
            await _ended(children, TERM_SECONDS)


async def _ended(children: Sequence[Child], seconds: float) -> bool:
    with trio.move_on_after(seconds) as scope:
        for child in children:
            await child.process.wait()
    return not scope.cancelled_caught


def parse_event(line: bytes) -> Document | None:
    """The event in a line of a child's stdout; None for any other line."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def log_tail(log: Path) -> list[str]:
    """The last lines of a log that are not empty."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [one_line(line) for line in text.splitlines() if line.strip()][-LOG_TAIL_LINES:]
