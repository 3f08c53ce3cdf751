from __future__ import annotations

import signal
import subprocess
import sys

import pytest
import trio
from trio.testing import MockClock

from tessella.cli.signals import Interrupts
from tessella.ending import EndedBySignal


async def press(number: int, times: int = 1) -> None:
    for _ in range(times):
        await trio.sleep(1)
        signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_unwinds_the_command_and_is_its_status(
    number: int, autojump_clock: MockClock
) -> None:
    cleaned = False

    async def main(_: Interrupts) -> None:
        nonlocal cleaned
        async with trio.open_nursery() as nursery:
            nursery.start_soon(press, number)
            try:
                await trio.sleep_forever()
            finally:
                cleaned = True

    with pytest.raises(EndedBySignal) as caught:
        await Interrupts().run(main)
    assert caught.value.number == number
    assert cleaned


async def test_more_signals_do_not_disturb_the_cleaning_up(autojump_clock: MockClock) -> None:
    async def main(_: Interrupts) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(press, signal.SIGINT)
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await press(signal.SIGINT, times=3)
                    await trio.sleep(1)

    with pytest.raises(EndedBySignal):
        await Interrupts().run(main)
    assert trio.current_time() >= 5


async def test_an_interrupt_goes_to_the_innermost_handler(autojump_clock: MockClock) -> None:
    heard: list[str] = []

    async def main(interrupts: Interrupts) -> None:
        with interrupts.go_to(lambda: heard.append("outer")):
            with interrupts.go_to(lambda: heard.append("inner")):
                await press(signal.SIGINT)
                await trio.sleep(1)
            await press(signal.SIGINT)
            await trio.sleep(1)

    await Interrupts().run(main)
    assert heard == ["inner", "outer"]


async def test_the_first_signal_may_ask_for_a_clean_end(autojump_clock: MockClock) -> None:
    stop = trio.Event()

    async def main(interrupts: Interrupts) -> None:
        interrupts.first_goes_to(stop.set)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(press, signal.SIGTERM)
            await stop.wait()

    await Interrupts().run(main)
    assert stop.is_set()


async def test_the_second_signal_does_not_wait_for_a_clean_end(autojump_clock: MockClock) -> None:
    async def main(interrupts: Interrupts) -> None:
        interrupts.first_goes_to(lambda: None)
        await press(signal.SIGTERM, times=2)
        await trio.sleep_forever()

    with pytest.raises(EndedBySignal):
        await Interrupts().run(main)


BLOCKED = """
import time
from tessella.cli.signals import gone_with_stdin
with gone_with_stdin({watched}):
    print("blocked", flush=True)
    time.sleep({seconds})
print("done", flush=True)
"""


def blocked(*, watched: bool, seconds: int) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", BLOCKED.format(watched=watched, seconds=seconds)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"blocked\n"
    return process


@pytest.mark.mesh
@pytest.mark.parametrize(("watched", "seconds", "said"), [(True, 600, b""), (False, 1, b"done\n")])
def test_a_program_that_imports_notices_that_its_stdin_closed(
    watched: bool, seconds: int, said: bytes
) -> None:
    with blocked(watched=watched, seconds=seconds) as process:
        out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, said)


@pytest.mark.mesh
def test_while_its_stdin_is_open_a_program_goes_on() -> None:
    with blocked(watched=True, seconds=0) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
