"""Whatever a user mistypes is answered by one line that names it, and never by a traceback."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tessella.core.identity import Identity

Command = Callable[..., Any]
NOBODY = f"/ip4/127.0.0.1/tcp/1/p2p/{Identity(bytes(32)).peer_id}"
STATUS = {"bad_config": 78}
NODE = ("--musivum", NOBODY, "--model", "toy", "--claim-mb", "64")


def assert_one_line(ended: Any, status: int, code: str, culprit: str) -> None:
    (line,) = ended.err.splitlines()
    assert f": {code}: " in line
    assert culprit in line
    assert (ended.status, ended.out) == (status, "")


@pytest.mark.parametrize(
    ("args", "code", "culprit"),
    [
        (("tessella", "chat", "hi"), "bad_config", "--musivum"),
        (("tessella", "chat", "hi", "--musivum", "nonsense"), "bad_address", "nonsense"),
        (("tessella", "chat", "hi", "--peer", "/ip4/1.2.3.4/tcp/1"), "bad_address", "1.2.3.4"),
        (("tessella", "chat", "hi", "--temperature", "9"), "bad_request", "temperature"),
        (("tessella", "chat", "hi", "--raw", "--system", "x"), "bad_config", "--system"),
        (("tessella", "chat", " ", "--musivum", NOBODY), "bad_config", "prompt"),
        (("tessella", "peers"), "bad_config", "--musivum"),
        (("tessella", "peers", "--musivum", "/ip4/x/tcp/1/p2p/y"), "bad_address", "y"),
        (("tessella", "models", "pull", "nobody-has-it"), "unknown_model", "nobody-has-it"),
        (("tessella", "up", "--prompt", "hi", "--claims", "300,x"), "bad_config", "'x'"),
        (("tessella", "up", "--prompt", "hi", "--workers", "0"), "bad_config", "workers"),
        (("tessella", "up", "--prompt", "hi", "--dtype", "f8"), "bad_config", "f8"),
        (("tessella", "up", "--prompt", " "), "bad_config", "--prompt"),
        (("tessella", "up", "--prompt", "hi", "--model", "nope"), "unknown_model", "nope"),
        (("tessella", "up", "--prompt", "hi", "--model", "./no.gguf"), "bad_weights", "./no.gguf"),
        (("tessella-worker",), "bad_config", "--model"),
        (("tessella-worker", *NODE), "unknown_model", "toy"),
        (("tessella-worker", *NODE, "--layers", "3:2"), "bad_config", "--layers"),
        (("tessella-worker", *NODE, "--listen", "0.0.0.0:80"), "bad_address", "0.0.0.0:80"),
        (("tessella-worker", *NODE, "--dtype", "f8"), "bad_config", "f8"),
        (("tessella-worker", "keys", "show"), "bad_key", "node.key"),
        (("tessella-worker", "plan"), "bad_config", "--model"),
        (("tessella-worker", "plan", "--model", "nope"), "unknown_model", "nope"),
    ],
)
def test_it_is_one_line_and_a_status_that_says_not_to_try_again(
    args: Sequence[str], code: str, culprit: str, command: Command
) -> None:
    assert_one_line(command(*args), STATUS.get(code, 1), code, culprit)


def test_without_a_prompt_and_a_terminal_the_prompt_is_piped_in(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    with empty.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert_one_line(command("tessella", "up"), 78, "bad_config", "--prompt")


def test_broken_weights_are_named(command: Command, broken_models: Sequence[Path]) -> None:
    for path in broken_models:
        ended = command("tessella", "up", "--prompt", "hi", "--model", str(path))
        assert_one_line(ended, 1, "bad_weights", str(path))


@pytest.mark.parametrize(
    ("setting", "code", "culprit"),
    [
        (("--claims", "3"), "claim_too_small", "worker 1"),
        (("--claims", "12,12"), "claim_too_small", "MB more"),
        (("--workers", "7"), "bad_config", "7 workers"),
        (("--device", "tpu"), "bad_config", "tpu"),
    ],
)
def test_a_mesh_that_cannot_hold_the_model_is_refused_before_it_is_started(
    setting: Sequence[str], code: str, culprit: str, command: Command, toy: Path
) -> None:
    ended = command("tessella", "up", "--prompt", "hi", "--model", str(toy), *setting)
    assert_one_line(ended, STATUS.get(code, 1), code, culprit)


def test_a_state_directory_that_cannot_be_made_is_named(
    command: Command, toy: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    place = str(tmp_path / "file" / "state")
    ended = command("tessella", "up", "--prompt", "hi", "--model", str(toy), "--dir", place)
    assert ended.status == 78
    assert ended.err.splitlines()[-1].startswith("tessella: bad_config: cannot write the direct")
    assert place in ended.err


def test_a_key_that_cannot_be_written_is_named(command: Command, toy: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    key = str(tmp_path / "file" / "node.key")
    ended = command("tessella-worker", *NODE, "--weights", str(toy), "--key", key)
    assert_one_line(ended, 1, "bad_key", key)


@pytest.mark.mesh
def test_a_port_in_use_is_named_and_may_be_free_later(
    command: Command, toy: Path, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        addr = f"/ip4/127.0.0.1/tcp/{taken.getsockname()[1]}"
        key = str(tmp_path / "node.key")
        where = ("--weights", str(toy), "--key", key, "--listen", addr)
        assert_one_line(command("tessella-worker", *NODE, *where), 75, "port_in_use", addr)


@pytest.mark.mesh
@pytest.mark.parametrize(
    "args",
    [
        ("chat", "hi", "--musivum", NOBODY),
        ("chat", "hi", "--peer", NOBODY),
        ("peers", "--musivum", NOBODY),
    ],
)
def test_a_mesh_that_does_not_answer_may_do_so_later(args: Sequence[str], command: Command) -> None:
    assert_one_line(command("tessella", *args), 75, "peer_unreachable", NOBODY[-52:])
