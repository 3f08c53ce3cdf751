"""The owner's commands, against a node that answers in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer

from tessella.cli import control
from tessella.cli.control import add_controls, answer_line, status_lines
from tessella.core.identity import Identity
from tessella.core.signed_request import PEER
from tessella.ending import run_program
from tessella.keys import create_key
from tessella.web import client as web_client
from tessella.web.client import open_client
from tessella.worker.api import operate


@dataclass
class Node:
    """Answers every call with one document, and remembers what was asked."""

    status: int = 200
    answer: Any = field(default_factory=dict)
    asked: list[httpx.Request] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        return httpx.Response(self.status, json=self.answer)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node()
    transport = httpx.MockTransport(node)
    monkeypatch.setattr(web_client, "open_client", lambda: open_client(transport))
    return node


Run = Callable[..., tuple[Any, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], home: Path) -> Run:
    app = typer.Typer(pretty_exceptions_enable=False)
    add_controls(app)

    def run(*args: str) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as caught:
            run_program(app, "node", args)
        out, err = capfd.readouterr()
        return caught.value.code, out, err

    return run


@pytest.fixture
def owner(home: Path) -> Identity:
    return create_key(home / ".config" / "tessella" / "node.key")


@pytest.mark.parametrize(
    ("args", "order"),
    [
        (("pause",), {"order": "pause", "minutes": None}),
        (("pause", "--minutes", "90"), {"order": "pause", "minutes": 90.0}),
        (("resume",), {"order": "resume"}),
        (("drain",), {"order": "drain"}),
    ],
)
def test_an_order_is_signed_with_the_key_of_the_node(
    run: Run, node: Node, owner: Identity, args: tuple[str, ...], order: dict[str, Any]
) -> None:
    node.answer = {"order": order["order"], "paused_by": None}
    status, _, err = run(*args)
    assert (status, err) == (0, "")
    (request,) = node.asked
    assert (request.method, str(request.url)) == ("POST", f"http://127.0.0.1:8080{operate.PATH}")
    assert json.loads(request.content) == order
    assert request.headers[PEER] == owner.peer_id


def test_a_node_elsewhere_is_told_where_it_is(run: Run, node: Node, owner: Identity) -> None:
    run("drain", "--api-url", "http://127.0.0.1:9001/")
    assert str(node.asked[0].url) == f"http://127.0.0.1:9001{operate.PATH}"


def test_without_the_key_nobody_is_told_anything(run: Run, node: Node, home: Path) -> None:
    status, _, err = run("pause", "--key", str(home / "none.key"))
    assert (status, node.asked) == (1, [])
    assert "none.key" in err


def test_what_the_node_refuses_is_one_line(run: Run, node: Node, owner: Identity) -> None:
    node.status = 401
    node.answer = {"error": {"code": "bad_signature", "message": "this is not for you to say"}}
    status, out, err = run("pause")
    assert (status, out) == (1, "")
    assert err == "node: bad_signature: this is not for you to say\n"


def test_an_answer_for_programs_is_one_line_of_json(run: Run, node: Node, owner: Identity) -> None:
    node.answer = {"order": "pause", "paused_by": "owner", "resumes_in_seconds": None}
    _, out, _ = run("pause", "--json")
    assert json.loads(out) == node.answer


def test_the_status_of_a_node_needs_no_key(run: Run, node: Node) -> None:
    node.answer = {"status": "Paused", "peer_id": "12D3KooWabc", "paused_by": "owner"}
    status, out, _ = run("status")
    assert status == 0
    assert [line.split() for line in out.splitlines()] == [
        ["peer", "12D3KooWabc"],
        ["status", "Paused"],
        ["paused", "owner"],
    ]
    _, out, _ = run("status", "--json")
    assert json.loads(out) == node.answer


def test_what_is_no_node_is_told_as_such(run: Run, node: Node) -> None:
    node.answer = [1, 2]
    status, _, err = run("status")
    assert status == 1
    assert "is there a node" in err


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ({"order": "drain"}, "draining: it ends once its sessions have"),
        ({"order": "pause", "paused_by": "owner"}, "paused (owner)"),
        (
            {"order": "pause", "paused_by": "owner", "resumes_in_seconds": 600.0},
            "paused (owner), for 10 minutes",
        ),
        ({"order": "resume", "paused_by": None}, "serving, once it has loaded"),
        ({"order": "resume", "paused_by": "sche\x1b[2Jdule"}, "paused (sche[2Jdule)"),
    ],
)
def test_an_answer_for_people_is_a_line(answer: dict[str, Any], line: str) -> None:
    assert answer_line(answer) == line


def test_facts_for_people_name_what_there_is() -> None:
    document = {
        "peer_id": "12D3KooWabc",
        "status": "Healthy",
        "model": "toy",
        "layer_range": [0, 9],
        "device": "cpu",
        "sessions": [{}, {}],
        "claim_mb": 400,
    }
    assert dict(line.split(maxsplit=1) for line in status_lines(document)) == {
        "peer": "12D3KooWabc",
        "status": "Healthy",
        "model": "toy",
        "layers": "0:9",
        "device": "cpu",
        "sessions": "2",
        "claim": "400 MB",
    }


def test_the_command_and_the_route_mean_the_same_place() -> None:
    assert control.OPERATE_PATH == operate.PATH
