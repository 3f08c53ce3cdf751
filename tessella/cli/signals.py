"""Ctrl-C and its relatives, as cancellation: whatever runs is unwound, and cleans up.

While a command runs no KeyboardInterrupt is raised inside it: a signal cancels it from outside,
once, and more of them do not disturb the cleaning up.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

import trio

from tessella.ending import EndedBySignal

READ_BYTES = 4096
# How late the end of the imports, or of standard input, is noticed.
HANGUP_POLL_MS = 100


class Interrupts:
    """Who is told of Ctrl-C: the innermost handler; without one it ends the command."""

    def __init__(self) -> None:
        self._handlers: list[Callable[[], None]] = []
        self._stop: Callable[[], None] | None = None
        self._scope = trio.CancelScope()
        self._ended_by: int | None = None

    @contextmanager
    def go_to(self, handler: Callable[[], None]) -> Iterator[None]:
        """Ctrl-C calls `handler` until the context is left."""
        self._handlers.append(handler)
        try:
            yield
        finally:
            self._handlers.remove(handler)

    def first_goes_to(self, stop: Callable[[], None]) -> None:
        """The first signal, of any kind, calls `stop`; the next one ends the command."""
        self._stop = stop

    def end(self, number: int) -> None:
        """End the command as this signal does."""
        self._ended_by = self._ended_by or number
        self._scope.cancel()

    async def watch(self) -> None:
        """Take the signals until cancelled."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as arrivals:
            async for number in arrivals:
                if self._stop is not None:
                    stop, self._stop = self._stop, None
                    stop()
                elif number == signal.SIGINT and self._handlers:
                    self._handlers[-1]()
                else:
                    self.end(number)

    async def run(self, main: Callable[[Interrupts], Awaitable[None]]) -> None:
        """Run `main` to its end. Raises EndedBySignal if a signal ended it."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.watch)
            with self._scope:
                await main(self)
            nursery.cancel_scope.cancel()
        if self._ended_by is not None:
            raise EndedBySignal(self._ended_by)


def run_command(main: Callable[[Interrupts], Awaitable[None]]) -> None:
    """Run a command's async part under the signals of a terminal. Raises what it raises."""
    trio.run(Interrupts().run, main)


@contextmanager
def gone_with_stdin(watched: bool) -> Iterator[None]:
    """End the process, at once, if standard input closes while the body blocks the loop.

    For a body that has nothing to clean up: imports that take many seconds on a busy machine.
    """
    if not watched:
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_exit_on_hangup, args=(done,), name="stdin", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _exit_on_hangup(done: threading.Event) -> None:
    hangup = select.poll()
    hangup.register(0, select.POLLHUP)
    while not done.is_set():
        if any(state & select.POLLHUP for _, state in hangup.poll(HANGUP_POLL_MS)):
            os._exit(0)


async def stdin_closed() -> None:
    """Wait until whoever holds the other end of standard input is gone."""
    while await stdin_said():
        pass


async def stdin_said() -> bytes:
    """Wait for whatever comes on standard input; empty at its end."""

    def read() -> bytes:
        # Not through sys.stdin: an interpreter that ends while a thread holds its lock aborts.
        return os.read(0, READ_BYTES)

    # The stubs that libp2p brings along are older than this argument.
    wait = partial(trio.to_thread.run_sync, read, abandon_on_cancel=True)  # type: ignore[call-arg, unused-ignore]
    said: bytes = await wait()
    return said
