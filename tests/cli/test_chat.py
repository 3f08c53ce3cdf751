"""`tessella chat` and `tessella fim` as a shell sees them; the API always says the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tessella.cli.session_file import load_session
from tessella.web import client as web_client
from tests.cli.scripted import Api, nobody

Command = Callable[..., Any]
URL = "http://node:8080"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    """What answers wherever the command calls."""
    answer = Api()
    serve(answer, monkeypatch)
    return answer


def serve(answer: Callable[..., httpx.Response], monkeypatch: pytest.MonkeyPatch) -> None:
    opened = web_client.open_client
    monkeypatch.setattr(web_client, "open_client", lambda: opened(httpx.MockTransport(answer)))


@contextmanager
def piped(text: str, path: Path) -> Iterator[None]:
    path.write_text(text)
    with path.open() as stdin, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", stdin)
        yield


@pytest.mark.parametrize(
    "args",
    [
        ("chat", "-a", URL, "why", "not?"),
        ("chat", "-a", URL, "-p", "why not?"),
        ("chat", "--api-url", URL, "--prompt", "why not?", "--plain"),
        ("-a", URL, "chat", "why not?"),
        ("--api-url", URL, "--model-id", "toy", "chat", "why", "not?"),
        ("chat", "why", "not?"),
    ],
)
def test_a_prompt_is_answered_on_stdout(args: tuple[str, ...], command: Command, api: Api) -> None:
    ended = command("tessella", *args)
    assert (ended.status, ended.out) == (0, "over HTTP\n")
    assert "chain:\n  layers 0:2      n" in ended.err
    ((path, asked),) = api.asked
    assert path == "/v1/chat/completions"
    assert asked["messages"] == [{"role": "user", "content": "why not?"}]
    assert (asked["model"], asked["max_tokens"], asked["temperature"]) == ("toy", 512, 0.0)
    assert "session" not in asked


@pytest.mark.parametrize("flags", [("--raw",), ("--mode", "raw")])
def test_a_raw_prompt_is_a_text_to_go_on_with(
    flags: tuple[str, ...], command: Command, api: Api
) -> None:
    command("tessella", "-a", URL, "chat", *flags, "-m", "5", "Once upon")
    ((path, asked),) = api.asked
    assert (path, asked["prompt"], asked["max_tokens"]) == ("/v1/completions", "Once upon", 5)


@pytest.mark.parametrize("name", ["chat", "fim"])
def test_a_gap_is_filled_with_nothing_after_it(name: str, command: Command, api: Api) -> None:
    args = ("--prefix", "fn main() {", "--suffix", "}", "--max-tokens", "128", "--timing")
    ended = command("tessella", "-a", URL, name, *args)
    assert (ended.status, ended.out) == (0, "over HTTP")
    assert "prefill" in ended.err
    ((path, asked),) = api.asked
    assert path == "/v1/fim/completions"
    assert (asked["prefix"], asked["suffix"], asked["max_tokens"]) == ("fn main() {", "}", 128)


def test_json_is_one_line(command: Command, api: Api) -> None:
    for args in (("chat", "hi"), ("fim", "--prefix", "x")):
        document = json.loads(command("tessella", "-a", URL, *args, "--json").out)
        assert (document["text"], document["finish_reason"]) == ("over HTTP", "stop")


def test_what_is_configured_holds_until_a_flag_says_otherwise(
    command: Command, api: Api, tmp_path: Path
) -> None:
    file = tmp_path / "client.toml"
    file.write_text('api_url = "http://configured"\nmax_tokens = 7\nmodel = "mine"\n')
    command("tessella", "-c", str(file), "chat", "hi")
    command("tessella", "chat", "-c", str(file), "-m", "9", "--model", "other", "hi")
    told = [(asked["model"], asked["max_tokens"]) for _, asked in api.asked]
    assert told == [("mine", 7), ("other", 9)]


def test_a_session_file_goes_on_from_run_to_run(command: Command, api: Api, tmp_path: Path) -> None:
    file = tmp_path / "session.json"
    command("tessella", "-a", URL, "chat", "--session-file", str(file), "one?")
    command("tessella", "chat", "--session-file", str(file), "two?")
    first, second = (asked for _, asked in api.asked)
    assert first["session"] == second["session"]
    assert [turn["content"] for turn in second["messages"]] == ["one?", "over HTTP", "two?"]
    saved = load_session(file)
    assert saved is not None
    assert saved.place is not None
    assert saved.place.api_url == URL


def test_lines_that_are_piped_in_are_a_conversation_where_one_is_wanted(
    command: Command, api: Api, tmp_path: Path
) -> None:
    with piped("one?\n\n/undo\ntwo\\\nlines?\n", tmp_path / "stdin"):
        ended = command("tessella", "-a", URL, "chat", "-i", "zero?")
    assert (ended.status, ended.out) == (0, "over HTTP\n" * 3)
    said = [[turn["content"] for turn in asked["messages"]] for _, asked in api.asked]
    assert said == [
        ["zero?"],
        ["zero?", "over HTTP", "one?"],
        ["zero?", "over HTTP", "two\nlines?"],
    ]
    assert len({asked["session"] for _, asked in api.asked}) == 1


def test_what_is_piped_in_is_one_prompt_otherwise(
    command: Command, api: Api, tmp_path: Path
) -> None:
    with piped("one?\ntwo?\n", tmp_path / "stdin"):
        command("tessella", "-a", URL, "chat")
    assert api.asked[0][1]["messages"][0]["content"] == "one?\ntwo?"


@pytest.mark.parametrize(
    ("args", "culprit"),
    [
        (("chat", "hi", "-p", "ho"), "--prompt"),
        (("chat", "hi", "--prefix", "x"), "--prefix"),
        (("chat", "--suffix", "x", "--raw"), "--suffix"),
        (("chat", "--prefix", ""), "around the gap"),
        (("fim",), "around the gap"),
        (("chat", "-i", "--json"), "--json"),
        (("chat", "hi", "--raw", "--session-file", "x"), "--session-file"),
        (("chat", "hi", "-a", "nonsense"), "nonsense"),
        (("chat", "hi", "-c", "nowhere.toml"), "nowhere.toml"),
        (("chat", "hi", "--session-file", "/dev/null/x"), "/dev/null/x"),
    ],
)
def test_what_does_not_go_together_is_one_line_and_nothing_is_asked(
    args: tuple[str, ...], culprit: str, command: Command, api: Api
) -> None:
    ended = command("tessella", *args)
    (line,) = ended.err.splitlines()
    assert culprit in line
    assert (ended.status not in (0, 2), ended.out, api.asked) == (True, "", [])


def test_where_no_node_is_the_line_names_all_four_ways(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve(nobody, monkeypatch)
    file = tmp_path / "session.json"
    (line,) = command("tessella", "chat", "hi", "--session-file", str(file)).err.splitlines()
    for way in ("--api-url", "--peer", "--musivum", "--bootstrap", "http://127.0.0.1:8080"):
        assert way in line
    assert not file.exists()
