"""The names that are asked under, and what is read from and written for them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from musivum.bodies import mesh
from musivum.doors.questions import (
    LEDGER,
    MAX_DOCUMENT,
    OPERATOR,
    PUBLIC,
    Question,
    find,
    framed,
    read_arguments,
    render,
)
from tessella.core.errors import BadRequest, Refused, UnknownRoute
from tessella.core.frames import MAX_LIST_FRAME
from tessella.core.messages import Document, seal

EVERY = [*PUBLIC.values(), *LEDGER.values(), *OPERATOR.values()]


def test_the_public_names_are_those_of_the_routes() -> None:
    assert set(PUBLIC) == {
        "/peers",
        "/api/network/models",
        "/workers",
        "/model_health",
        "/api/v1/assignment",
        "/api/v1/chain",
        "/weights/manifest",
        "/weights/manifests",
        "/p2p_id",
    }
    assert {(each.method, each.path) for each in OPERATOR.values()} == {
        ("POST", "/rebalance"),
        ("POST", "/weights/manifest"),
        ("GET", "/reputation"),
        ("GET", "/ledger"),
        ("GET", "/ledger/snapshot"),
        ("GET", "/credits"),
        ("POST", "/slash"),
        ("POST", "/appeal"),
    }
    assert set(LEDGER) == {"/ledger/head", "/ledger/proof"}
    assert {each.method for each in PUBLIC.values()} == {"GET"}


@pytest.mark.parametrize("question", EVERY, ids=lambda each: f"{each.method} {each.path}")
def test_whoever_answers_says_what_it_answers(question: Question[Any]) -> None:
    assert issubclass(question.takes, BaseModel)
    assert len((question.answer.__doc__ or "").split()) >= 3


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("/peers", b"{", "arguments that are not JSON"),
        ("/peers", b"\xff", "arguments that are not JSON"),
        ("/peers", b"[" * 100_000, "arguments that are not JSON"),
        ("/peers", b"1" * 5_000, "arguments that are not JSON"),
        ("/peers", b"[]", "arguments: Input should be a valid dictionary"),
        ("/peers", b'{"model": "x"}', "model: Extra inputs are not permitted"),
        ("/peers", b'{"model_id": 3}', "model_id: Input should be a valid string"),
        ("/model_health", b"", "model_id: Field required"),
        ("/model_health", b'{"model_id": ""}', "model_id: String should have at least 1 character"),
        ("/model_health", b'{"model_id": "m", "device": "tpu"}', "device: Input should be 'cuda'"),
        ("/model_health", b'{"model_id": "m", "context_size": 0}', "context_size: Input should be"),
        ("/api/v1/assignment", b'{"model_id": "m", "vram_mb": -1}', "vram_mb: Input should be"),
        ("/api/v1/assignment", b'{"model_id": "m", "vram_mb": NaN}', "vram_mb: Input should be"),
        ("/api/v1/assignment", b'{"model_id": "\\ud800", "vram_mb": 1}', "model_id: Input should"),
    ],
)
def test_arguments_that_cannot_be_read_are_named(name: str, data: bytes, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_arguments(PUBLIC[name], data)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 300


def test_no_arguments_are_an_empty_object() -> None:
    assert read_arguments(PUBLIC["/peers"], b"") == mesh.OfAnyModel()
    asked = read_arguments(PUBLIC["/api/v1/assignment"], b'{"model_id": "m", "vram_mb": "8"}')
    assert asked == mesh.AssignmentArguments(model_id="m", vram_mb=8)


@pytest.mark.parametrize("name", ["", "/", "peers", "/PEERS", "/peers/", "/rebalance", "/" * 4096])
def test_a_name_that_nobody_answers_is_named_in_part(name: str) -> None:
    with pytest.raises(UnknownRoute) as caught:
        find(PUBLIC, name)
    assert len(str(caught.value)) < 300
    assert find(PUBLIC, "/peers") is PUBLIC["/peers"]


def test_answers_are_ascii_and_fit_their_frame() -> None:
    model = mesh.NetworkModel(
        model_id="modèle", active_workers=0, workers=0, health="healthy", total_layers=1
    )
    data = render(PUBLIC["/api/network/models"], [model])
    assert data.isascii()
    assert json.loads(data) == [model.model_dump()]


def test_an_answer_that_no_frame_holds_says_what_to_do_instead() -> None:
    row = mesh.WorkerBody(
        peer_id="12D3KooW" + "x" * 44,
        model_id="m" * 200,
        status="Healthy",
        vram_mb=1,
        queue_depth=0,
        layer_ranges=[(0, 1)],
        device="cpu",
    )
    one = len(render(PUBLIC["/workers"], [row])) - 1
    most = (MAX_DOCUMENT - 1) // one
    data = framed("/workers", render(PUBLIC["/workers"], [row] * most))
    assert len(seal(Document(data))) <= MAX_LIST_FRAME
    with pytest.raises(Refused, match="ask for one model, or over HTTP"):
        framed("/workers", render(PUBLIC["/workers"], [row] * (most + 1)))
