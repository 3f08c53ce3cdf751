"""Whole nodes of a real musivum: what they serve is paid, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tessella.client import complete
from tessella.core.completions import CompletionRequest
from tessella.core.errors import RemoteFailure, StoreLost, StoreUnavailable, TessellaError
from tessella.core.exits import leaves
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.sampling import Sampling
from tessella.worker.proofs import upload
from tessella.worker.proofs.book import ProofBook
from tessella.worker.proofs.totals import Totals, read_summary

MODEL = ModelId("toy")
OpenMesh = Callable[..., Any]
RANGES = (LayerRange(0, 2), LayerRange(2, 4), LayerRange(4, 6))


@asynccontextmanager
async def paid_mesh(open_mesh: OpenMesh, tmp_path: Path, ranges: Any = RANGES) -> Any:
    """Nodes with a book each, and where it is."""
    async with open_mesh([]) as mesh:
        books = [tmp_path / f"{number}.proofs.db" for number in range(len(ranges))]
        for number, (layers, book) in enumerate(zip(ranges, books, strict=True), 1):
            await mesh.start(layers, bytes([number]) * 32, proofs=book)
        yield mesh, books


def totals(books: list[Path]) -> list[Totals]:
    return [read_summary(book, 1).totals for book in books]


@pytest.mark.parametrize("ranges", [RANGES, (LayerRange(0, 6),)], ids=["three", "alone"])
async def test_every_stage_of_a_chain_is_paid_for_its_layers_and_positions(
    open_mesh: OpenMesh, tmp_path: Path, inline: None, autojump_clock: MockClock, ranges: Any
) -> None:
    async with paid_mesh(open_mesh, tmp_path, ranges) as (mesh, books):
        answer = await mesh.ask("who pays for this?", max_tokens=8)
        prompt = answer.begun.prompt_tokens
        await trio.sleep(30.0)
        status = (await mesh.status(mesh.nodes[0]))["proofs"]
    # The last token is chosen, and no stage computes it.
    positions = prompt + 7
    for layers, found in zip(ranges, totals(books), strict=True):
        served = len(layers) * positions
        assert found == Totals(1, served, 0, 1, 0, served * 1000)
    assert (status["paid"], status["unsettled"], status["refused"]) == (1, 0, 0)
    assert status["credits"] == pytest.approx(len(ranges[0]) * positions / 1000)


async def in_a_conversation(mesh: Any, prompt: str) -> Any:
    sampling = Sampling(max_tokens=8, ignore_eos=True)
    request = CompletionRequest(
        model=MODEL, prompt=prompt, sampling=sampling, session="a talk of tests "
    )
    answer = mesh.an_answer()
    async for event in complete(mesh.client, mesh.nodes[0].address, request):
        answer.take(event)
    return answer


async def test_a_conversation_is_paid_for_what_each_request_computes(
    open_mesh: OpenMesh, tmp_path: Path, inline: None, autojump_clock: MockClock
) -> None:
    async with paid_mesh(open_mesh, tmp_path) as (mesh, books):
        computed = []
        prompt = "who pays for this?"
        for _ in range(3):
            answer = await in_a_conversation(mesh, prompt)
            begun = answer.begun
            computed.append(begun.prompt_tokens + 7 - begun.cached_tokens)
            prompt += answer.text + " and then?"
            await trio.sleep(5.0)
        assert computed[1] < begun.prompt_tokens
        await trio.sleep(30.0)
    for found in totals(books):
        assert found == Totals(3, 2 * sum(computed), 0, 3, 0, 2000 * sum(computed))


async def test_work_for_a_client_that_leaves_is_paid_as_far_as_it_went(
    open_mesh: OpenMesh, tmp_path: Path, inline: None, autojump_clock: MockClock
) -> None:
    async with paid_mesh(open_mesh, tmp_path) as (mesh, books):
        for node in mesh.nodes:
            node.compute.pace = 0.1
        with trio.move_on_after(6.0):
            await mesh.ask("who pays for this?", max_tokens=100)
        await trio.sleep(120.0)
    found = totals(books)
    assert [each.sessions for each in found] == [1, 1, 1]
    assert [each.paid for each in found] == [1, 1, 1]
    assert all(each.micro > 0 for each in found)


async def test_what_a_node_has_no_time_to_bring_is_paid_after_its_next_start(
    open_mesh: OpenMesh,
    tmp_path: Path,
    inline: None,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_mesh([]) as mesh:
        book, whole = tmp_path / "one.proofs.db", LayerRange(0, 6)
        with monkeypatch.context() as patched:
            patched.setattr(upload, "GATHER_SECONDS", 1e6)
            node = await mesh.start(whole, b"\1" * 32, proofs=book)
            await mesh.ask("who pays for this?", max_tokens=8)
            mesh.crash(node)
            await trio.sleep(1.0)
        assert read_summary(book, 1).unsent == 1
        await mesh.start(whole, b"\1" * 32, proofs=book)
        await trio.sleep(5.0)
        assert read_summary(book, 1).totals.paid == 1


async def test_a_node_without_a_book_serves_for_nothing(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([6]) as mesh:
        await mesh.ask("who pays for this?", max_tokens=4)
        assert (await mesh.status(mesh.nodes[0]))["proofs"] is None


def full(*_: object) -> None:
    raise StoreUnavailable("the disk is full")


async def test_a_full_disk_ends_answers_before_their_end_and_refuses_more(
    open_mesh: OpenMesh,
    tmp_path: Path,
    inline: None,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with paid_mesh(open_mesh, tmp_path) as (mesh, books):
        with monkeypatch.context() as patched:
            patched.setattr(ProofBook, "_transact", full)
            for _ in range(2):
                with pytest.raises(RemoteFailure) as caught:
                    await mesh.ask("who pays for this?", max_tokens=8)
                assert (caught.value.code, caught.value.status) == ("store_unavailable", 503)
        await trio.sleep(60.0)
        await mesh.ask("who pays for this?", max_tokens=8)
        await trio.sleep(30.0)
    for found in totals(books):
        assert found.paid == found.sessions
        assert found.refused == 0


async def test_a_disk_that_failed_ends_the_node(
    open_mesh: OpenMesh,
    tmp_path: Path,
    inline: None,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lost(*_: object) -> None:
        raise StoreLost("the disk failed")

    with pytest.raises(BaseExceptionGroup) as caught:
        async with paid_mesh(open_mesh, tmp_path, (LayerRange(0, 6),)) as (mesh, _):
            monkeypatch.setattr(ProofBook, "_transact", lost)
            with suppress(TessellaError):
                await mesh.ask("who pays for this?", max_tokens=8)
            await trio.sleep(60.0)
    assert any(isinstance(leaf, StoreLost) for leaf in leaves(caught.value))
