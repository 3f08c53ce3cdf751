"""What `tessella-worker` does about its file, and how it shows what holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from musivum.cli.pages import markdown as page_of_musivum
from tessella.cli import worker
from tessella.cli.node_options import Given
from tessella.cli.node_settings import complete_settings
from tessella.core.errors import BadConfig
from tessella.worker.config import WorkerConfig
from tessella.worker.settings import KEYS
from tessella.worker.settings.pages import markdown, node_file

Command = Callable[..., Any]
DOCUMENT = Path(__file__).parents[2] / "docs" / "config.md"
URL = "https://tracker1.example"
SECRET = "hf_s3cret"
FLAGS: dict[str, object] = {"orchestrator_url": URL, "vram_mb": 64, "default_model": "toy"}


@pytest.fixture(autouse=True)
def nowhere(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without a file, and an environment without settings."""
    for name in ("ORCHESTRATOR_URL", "HF_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    place = tmp_path / "cwd"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def wizard(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where a wizard was asked to write; it answers as FLAGS."""
    asked: list[Path] = []

    def run_wizard(path: Path, environ: Mapping[str, str]) -> None:
        asked.append(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(node_file(FLAGS))

    monkeypatch.setattr("tessella.cli.wizard.run_wizard", run_wizard)
    return asked


def at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, *, stdin: bool = True, stdout: bool = True
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: stdin, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: stdout, raising=False)


def test_without_a_terminal_all_that_is_missing_is_one_line_and_exit_78(command: Command) -> None:
    ended = command("tessella-worker")
    assert (ended.status, ended.out) == (78, "")
    (line,) = ended.err.splitlines()
    for variable in ("ORCHESTRATOR_URL", "TESSELLA_DEFAULT_MODEL", "TESSELLA_VRAM_MB"):
        assert variable in line


def test_a_file_that_is_named_and_not_there_is_told_with_all_that_is_missing(
    command: Command,
) -> None:
    ended = command("tessella-worker", "--config", "no.toml", "--vram-gb", "2")
    assert ended.status == 78
    (line,) = ended.err.splitlines()
    assert "there is no file no.toml" in line
    assert "TESSELLA_DEFAULT_MODEL" in line
    assert "TESSELLA_VRAM_MB" not in line


def test_a_file_that_is_named_has_to_be_there_whatever_else_is_set(wizard: list[Path]) -> None:
    with pytest.raises(BadConfig, match=r"there is no file no\.toml .*makes it\)$"):
        complete_settings(Given(Path("no.toml"), FLAGS), {})
    assert wizard == []


def test_at_a_terminal_a_wizard_makes_the_file(
    wizard: list[Path], nowhere: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_a_terminal(monkeypatch)
    settings = complete_settings(Given(nowhere / "new.toml"), {})
    assert (settings.file, settings.worker.vram_mb) == (nowhere / "new.toml", 64)
    settings = complete_settings(Given(flags={"vram_mb": 7}), {})
    assert settings.file == home / ".config" / "tessella" / "worker_config.toml"
    assert settings.worker.vram_mb == 7
    assert wizard == [nowhere / "new.toml", settings.file]
    assert complete_settings(Given(), {}).file == settings.file
    assert len(wizard) == 2


@pytest.mark.parametrize(("stdin", "stdout"), [(True, False), (False, True)])
def test_a_wizard_needs_a_terminal_at_both_ends(
    wizard: list[Path], stdin: bool, stdout: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_a_terminal(monkeypatch, stdin=stdin, stdout=stdout)
    complete_settings(Given(), {})
    assert wizard == []


def test_nobody_is_asked_where_nothing_is_missing_or_a_file_is_there(
    wizard: list[Path], nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_a_terminal(monkeypatch)
    assert complete_settings(Given(flags=FLAGS), {}).file is None
    (nowhere / "worker_config.toml").write_text("[worker]\nvram_mb = 1\n")
    assert complete_settings(Given(), {}).file == Path("worker_config.toml")
    assert wizard == []


def test_a_file_says_what_flags_and_variables_do_not(
    command: Command, toy: Path, nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[WorkerConfig] = []
    monkeypatch.setattr(worker, "run_command", lambda main: found.append(main.args[0]))
    monkeypatch.setenv("ORCHESTRATOR_URL", URL)
    key = nowhere / "my.key"
    (nowhere / "worker_config.toml").write_text(
        f'keypair_path = "{key}"\n[worker]\nvram_mb = 1\nweights = "{toy}"\napi_port = 1\n'
        'log_format = "json"\n'
    )
    monkeypatch.setenv("TESSELLA_API_PORT", "2")
    ended = command("tessella-worker", "--vram-gb", "3", "--no-lan")
    assert ended.status == 0, ended.err
    (config,) = found
    assert (config.orchestrator_url, config.claim_mb) == (URL, 3072)
    assert (config.http, config.lan, config.log_format) == (("0.0.0.0:2",), False, "json")
    assert key.exists()


def test_every_key_is_shown_with_its_value_and_source(
    command: Command, nowhere: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nowhere / "worker_config.toml").write_text("[worker]\npublic_ip = '203.0.113.7'\n")
    monkeypatch.setenv("ORCHESTRATOR_URL", URL)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    ended = command("tessella-worker", "--vram-gb", "2", "config")
    assert (ended.status, ended.err) == (0, "")
    lines = [line.split() for line in ended.out.splitlines()]
    assert lines[0] == ["file:", "worker_config.toml"]
    assert ["orchestrator_url", URL, "environment"] in lines
    assert ["worker", "vram_mb", "2048", "flag"] in lines
    assert ["worker", "public_ip", "203.0.113.7", "file"] in lines
    assert ["worker", "api_enabled", "true", "default"] in lines
    assert ["gpu", "oom_streak", "3", "default"] in lines
    assert ["keypair_path", str(home / ".config/tessella/node.key"), "default"] in lines
    assert ["HF_TOKEN", "***", "environment"] in lines
    assert SECRET not in ended.out
    assert len(lines) == 2 + len(KEYS.by_name) + 1


def test_the_same_as_json_is_one_object(
    command: Command, nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    file = nowhere / "x.toml"
    file.write_text("[gpu]\noom_streak = 4\n")
    ended = command("tessella-worker", "config", "--config", str(file), "--json")
    found = json.loads(ended.out)
    assert found["oom_streak"] == {"value": 4, "source": "file", "section": "gpu"}
    assert found["dtype"] == {"value": None, "source": "default", "section": "worker"}
    assert found["HF_TOKEN"] == {"value": "***", "source": "environment"}
    assert set(found) == {*KEYS.by_name, "HF_TOKEN"}
    assert SECRET not in ended.out


def test_documents_are_printed_as_they_are_and_one_at_a_time(command: Command) -> None:
    assert command("tessella-worker", "config", "--example").out == node_file({})
    assert command("tessella-worker", "config", "--markdown").out == markdown()
    ended = command("tessella-worker", "config", "--example", "--json")
    assert (ended.status, ended.out) == (1, "")


def test_the_page_in_docs_is_what_both_programs_say() -> None:
    made = "(musivum config --markdown; echo; tessella-worker config --markdown) > docs/config.md"
    assert DOCUMENT.read_text() == f"{page_of_musivum()}\n{markdown()}", made


def test_a_wrong_file_is_one_line(command: Command, nowhere: Path) -> None:
    (nowhere / "worker_config.toml").write_text("vram_mb = 1\n")
    for args in ((), ("config",)):
        ended = command("tessella-worker", *args)
        assert ended.status == 78
        assert ended.err == (
            "tessella-worker: bad_config: worker_config.toml: vram_mb stands at the top, and "
            "belongs in [worker]\n"
        )
