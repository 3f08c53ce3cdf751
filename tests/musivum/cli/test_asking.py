"""Where the commands find a musivum, who is told the token, and how a failure ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from musivum.bodies.operator import Rebalanced
from musivum.cli import asking
from musivum.cli.asking import url_of
from musivum.cli.manifest import MANIFEST
from musivum.cli.mesh import PEERS
from musivum.cli.orders import REBALANCE, REPUTATION
from musivum.config import MusivumConfig
from musivum.doors.questions import OPERATOR, PUBLIC
from tessella.core.errors import BadConfig
from tessella.web.client import open_client

TOKEN = "t" * 64
NO_MOVES = Rebalanced(moves=[]).model_dump()


def test_what_is_asked_is_what_is_answered_elsewhere() -> None:
    assert {PEERS, MANIFEST} <= set(PUBLIC)
    assert [OPERATOR[path].method for path in (REBALANCE, MANIFEST, REPUTATION)] == [
        "POST",
        "POST",
        "GET",
    ]


@pytest.mark.parametrize(
    ("http", "url"),
    [
        ("127.0.0.1:80", "http://127.0.0.1:80"),
        ("0.0.0.0:81", "http://127.0.0.1:81"),
        (":82", "http://127.0.0.1:82"),
        ("[::]:83", "http://[::1]:83"),
        ("192.0.2.1:84", "http://192.0.2.1:84"),
        ("hub.example:85", "http://hub.example:85"),
    ],
)
def test_a_musivum_of_this_machine_is_where_its_settings_say(http: str, url: str) -> None:
    assert url_of(MusivumConfig(http=(http, "127.0.0.1:1"))) == url


@pytest.mark.parametrize("http", [(), ("127.0.0.1:0",)])
def test_where_settings_do_not_say_it_a_url_is_asked_for(http: tuple[str, ...]) -> None:
    with pytest.raises(BadConfig, match="--url"):
        url_of(MusivumConfig(http=http))


def test_the_url_of_the_flag_goes_before_the_settings(command: Any, fake: Any, home: Path) -> None:
    fake.say("GET", PEERS, [])
    assert command("peers").status == 0
    assert str(fake.last.url) == "http://127.0.0.1:4080/peers"
    (home / "m.toml").write_text('http = [":99"]\n')
    command("peers", "--config", "m.toml")
    assert str(fake.last.url) == "http://127.0.0.1:99/peers"
    command("peers", "--config", "m.toml", "--url", "https://hub.example/")
    assert str(fake.last.url) == "https://hub.example/peers"


def test_the_token_goes_out_with_orders_and_never_with_questions(
    command: Any, fake: Any, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.say("GET", PEERS, [])
    command("peers")
    assert "authorization" not in fake.last.headers
    fake.say("POST", REBALANCE, NO_MOVES)
    ended = command("rebalance")
    assert (ended.status, ended.err) == (0, "")
    assert fake.last.headers["authorization"] == f"Bearer {TOKEN}"
    monkeypatch.setenv("MUSIVUM_ADMIN_TOKEN", "e" * 32)
    command("rebalance")
    assert fake.last.headers["authorization"] == "Bearer " + "e" * 32
    command("rebalance", "--token-file", str(token_file))
    assert fake.last.headers["authorization"] == f"Bearer {TOKEN}"


def test_without_a_token_no_order_goes_out(command: Any, fake: Any) -> None:
    ended = command("rebalance")
    assert ended.status == 1
    assert ended.err.startswith("musivum: bad_key: there is no admin token ")
    assert fake.asked == []


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [(401, "admin_only", 1), (429, "too_many_requests", 75), (503, "store_unavailable", 75)],
)
def test_a_refusal_is_one_line_with_musivum_s_own_code(
    status: int, code: str, exit_code: int, command: Any, fake: Any, token_file: Path
) -> None:
    answer = {"error": {"code": code, "message": "said\x1b[2J by musivum"}}
    fake.say("POST", REBALANCE, answer, status)
    ended = command("rebalance")
    assert (ended.status, ended.out) == (exit_code, "")
    assert ended.err.startswith(f"musivum: {code}: said")
    assert ended.err.count("\n") == 1
    assert "\x1b" not in ended.err
    assert TOKEN not in ended.err


@pytest.mark.parametrize("answer", [{}, 7, ["x"], None])
def test_an_answer_of_another_program_is_one_line(answer: object, command: Any, fake: Any) -> None:
    fake.say("GET", PEERS, answer)
    ended = command("peers")
    assert ended.status == 1
    assert ended.err.startswith("musivum: bad_frame: ")
    assert ended.err.count("\n") == 1


def test_a_musivum_that_cannot_be_reached_may_be_there_later(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    monkeypatch.setattr(asking, "open_client", lambda: open_client(httpx.MockTransport(refuse)))
    ended = command("status")
    assert ended.status == 75
    assert ended.err.startswith("musivum: peer_unreachable: http://127.0.0.1:4080/status ")


def test_a_url_that_is_none_is_named(command: Any) -> None:
    ended = command("status", "--url", "nonsense")
    assert ended.status == 1
    assert ended.err.startswith("musivum: bad_address: ")
    assert "nonsense" in ended.err
