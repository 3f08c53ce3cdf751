"""Commands in this process, against a musivum that answers what a test tells it to."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from musivum.cli import asking, run
from tessella.web.client import open_client

TOKEN = "t" * 64


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    status: int | str | None
    out: str
    err: str


Page = Callable[[dict[str, str]], httpx.Response]


@dataclass
class FakeMusivum:
    """Answers by method and path, and keeps what it was asked."""

    answers: dict[tuple[str, str], tuple[int, object]] = field(default_factory=dict)
    pages: dict[str, Page] = field(default_factory=dict)
    """What is answered to a GET by its query."""
    asked: list[httpx.Request] = field(default_factory=list)

    def say(self, method: str, path: str, answer: object, status: int = 200) -> None:
        """Answer so from here on."""
        self.answers[method, path] = status, answer

    def handle(self, request: httpx.Request) -> httpx.Response:
        """The answer to one request."""
        self.asked.append(request)
        if request.url.path in self.pages:
            return self.pages[request.url.path](dict(request.url.params))
        status, answer = self.answers[request.method, request.url.path]
        return httpx.Response(status, json=answer)

    @property
    def last(self) -> httpx.Request:
        """What it was asked last."""
        return self.asked[-1]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and no settings of whoever runs the tests."""
    for name in [key for key in os.environ if key.startswith("MUSIVUM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def token_file(home: Path) -> Path:
    """The token where a musivum with default settings keeps it."""
    file = home / ".musivum" / "admin.token"
    file.parent.mkdir()
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeMusivum:
    """What the commands reach instead of a network."""
    made = FakeMusivum()
    monkeypatch.setattr(
        asking, "open_client", lambda: open_client(httpx.MockTransport(made.handle))
    )
    return made


Command = Callable[..., Ended]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """A function that runs a command in this process."""

    def call(*args: str) -> Ended:
        with pytest.raises(SystemExit) as caught:
            run(args)
        out, err = capsys.readouterr()
        return Ended(caught.value.code, out, err)

    return call
