"""Programs of ours as processes, down to the last of them."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest
import trio

from tessella.cli import processes
from tessella.cli.failure import ProcessDied
from tessella.cli.processes import Program, open_children, parse_event, python_program
from tessella.cli.render import Document
from tessella.ending import root_cause

SAY_READY = 'print(\'{"event": "ready"}\', flush=True)'
OBEDIENT = f"import sys; {SAY_READY}; sys.stdin.read()"
DEAF = f"import time; {SAY_READY}; time.sleep(600)"
STUBBORN = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SAY_READY}; "
STUBBORN += "time.sleep(600)"

BOUND = 20.0


def program(code: str, name: str = "child", **settings: bool) -> Program:
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    return Program(name=name, argv=argv, env=os.environ, **settings)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def death_of(first: Program, dying: Program, logs: Path) -> tuple[ProcessDied, list[int]]:
    """What is raised when the second dies while the first is ready, and the ids of both."""
    pids = []
    try:
        with trio.fail_after(BOUND):
            async with open_children(logs, ignore) as children:
                child = await children.start(first)
                await child.wait_for("ready", BOUND)
                pids = [child.process.pid, (await children.start(dying)).process.pid]
                await trio.sleep_forever()
    except BaseExceptionGroup as group:
        died = root_cause(group)
        assert isinstance(died, ProcessDied)
        return died, pids
    raise AssertionError("nobody died")


def ignore(_: str, __: Document) -> None:
    """Nobody listens."""


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b'{"event": "ready"}', {"event": "ready"}),
        (b"", None),
        (b"[1]", None),
        (b"WARNING: torch", None),
        (b"\xff", None),
        (b"[" * 100_000, None),
    ],
)
def test_only_an_object_is_an_event(line: bytes, event: Document | None) -> None:
    assert parse_event(line) == event


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "END_SECONDS", 0.2)
    monkeypatch.setattr(processes, "TERM_SECONDS", 0.2)


@pytest.mark.mesh
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("code", [OBEDIENT, DEAF, STUBBORN], ids=["obedient", "deaf", "stubborn"])
async def test_no_child_outlives_the_context(code: str, tmp_path: Path) -> None:
    with trio.fail_after(BOUND):
        async with open_children(tmp_path, ignore) as children:
            child = await children.start(program(code))
            await child.wait_for("ready", BOUND)
            assert is_alive(child.process.pid)
    assert not is_alive(child.process.pid)


@pytest.mark.mesh
async def test_cancelling_ends_them_too(tmp_path: Path) -> None:
    with trio.fail_after(BOUND), trio.CancelScope() as scope:
        async with open_children(tmp_path, ignore) as children:
            child = await children.start(program(OBEDIENT))
            await child.wait_for("ready", BOUND)
            scope.cancel()
            await trio.sleep_forever()
    assert not is_alive(child.process.pid)


@pytest.mark.mesh
async def test_one_that_dies_is_named_with_its_last_words_and_the_rest_end(tmp_path: Path) -> None:
    dying = "import sys; print('first', file=sys.stderr); sys.exit('last words')"
    died, pids = await death_of(program(OBEDIENT, "worker-1"), program(dying, "worker-2"), tmp_path)
    assert "worker-2 ended with status 1: last words" in str(died)
    assert str(tmp_path / "worker-2.log") in str(died)
    assert died.__notes__ == ["  | first"]
    assert not died.retry
    assert not any(map(is_alive, pids))


@pytest.mark.mesh
@pytest.mark.parametrize(("status", "retry"), [(75, True), (0, False), (1, False)])
async def test_its_status_says_whether_trying_again_helps(
    status: int, retry: bool, tmp_path: Path
) -> None:
    dying = program(f"import sys; sys.exit({status})")
    died, _ = await death_of(program(OBEDIENT), dying, tmp_path)
    assert died.retry is retry


@pytest.mark.mesh
async def test_one_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    async with open_children(tmp_path, ignore) as children:
        child = await children.start(program(OBEDIENT))
        with pytest.raises(ProcessDied, match=r"child said nothing .* before it was assigned"):
            await child.wait_for("assigned", 0.5)


@pytest.mark.mesh
async def test_events_are_told_and_what_is_none_is_passed_over(tmp_path: Path) -> None:
    noisy = f"print('x' * 200_000); print('[1]'); {OBEDIENT}"
    told: list[tuple[str, Document]] = []
    with trio.fail_after(BOUND):
        async with open_children(tmp_path, lambda name, event: told.append((name, event))) as all_:
            child = await all_.start(program(noisy))
            await child.wait_for("ready", BOUND)
    assert told == [("child", {"event": "ready"})]


@pytest.mark.mesh
async def test_the_last_one_ends_after_the_others(tmp_path: Path) -> None:
    note = "open({!r}, 'a').write({!r})"
    ended = tmp_path / "ended"
    with trio.fail_after(BOUND):
        async with open_children(tmp_path, ignore) as children:
            for name, last in (("first", True), ("second", False)):
                code = f"{OBEDIENT}; {note.format(str(ended), name + ' ')}"
                child = await children.start(program(code, name, last=last))
                await child.wait_for("ready", BOUND)
    assert await trio.Path(ended).read_text() == "second first "


@pytest.mark.mesh
async def test_children_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    """A parent that has no chance to clean up: a child still notices that its stdin closed."""
    code = f"""
        import os, sys, trio
        from pathlib import Path
        from tessella.cli.processes import Program, open_children

        async def main():
            async with open_children(Path({str(tmp_path)!r}), lambda *_: None) as children:
                argv = [sys.executable, "-c", {OBEDIENT!r}]
                child = await children.start(Program(name="child", argv=argv, env=os.environ))
                await child.wait_for("ready", 20)
                print(child.process.pid, flush=True)
                await trio.sleep_forever()

        trio.run(main)
    """
    with trio.fail_after(BOUND):
        argv = [sys.executable, "-c", textwrap.dedent(code)]
        parent = await trio.lowlevel.open_process(argv, stdout=-1)
        assert parent.stdout is not None
        pid = int(await parent.stdout.receive_some())
        parent.send_signal(signal.SIGKILL)
        await parent.wait()
        while is_alive(pid):  # noqa: ASYNC110 - no event tells of a stranger's end
            await trio.sleep(0.02)


@pytest.mark.mesh
async def test_a_module_runs_whatever_lies_in_the_current_directory(tmp_path: Path) -> None:
    (tmp_path / "trio.py").write_text("raise SystemExit('the wrong trio')")
    argv = python_program("tessella.cli.worker", "--help")
    ran = await trio.run_process(argv, cwd=tmp_path, capture_stdout=True, capture_stderr=True)
    assert b"tessella-worker" in ran.stdout
