"""A conversation goes on with the KV that it left; where that is lost, it begins anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tessella.client import ask_peers, complete
from tessella.core.completions import CompletionRequest
from tessella.core.ids import ModelId, PeerId, SessionId
from tessella.core.layers import LayerRange
from tessella.core.messages import Stage
from tessella.core.sampling import Sampling
from tessella.core.session import MAX_PARK_SECONDS
from tessella.worker import loading
from tessella.worker.kept import MAX_KEPT, Conversations, Kept
from tessella.worker.sessions import Sessions

OpenMesh = Callable[..., Any]
NAME = "the name of a conversation"
FIRST = "a prompt that is longer than one chunk of eight positions"
STAGES = tuple(Stage(PeerId(name), LayerRange(0, 1)) for name in "abc")


def kept(ids: list[int]) -> Kept:
    return Kept(SessionId(b"x" * 16), 0, STAGES, ids)


@pytest.mark.parametrize(
    ("held", "prompt", "shared"),
    [
        ([1, 2, 3], [1, 2, 3, 4], 3),
        ([1, 2, 3], [1, 2, 3], 2),
        ([1, 2, 3], [1, 9, 3, 4], 1),
        ([1, 2, 3], [9], 0),
        ([1, 2, 3], [1], 0),
        ([], [1, 2], 0),
        ([1, 2, 3, 4, 5], [1, 2, 3], 2),
    ],
)
def test_a_prompt_goes_on_from_what_it_shares_and_its_last_token_is_computed(
    held: list[int], prompt: list[int], shared: int
) -> None:
    assert kept(held).shared(prompt) == shared


def test_a_chain_stands_while_all_behind_the_entry_serve() -> None:
    assert kept([]).stands({PeerId("b"), PeerId("c")})
    assert not kept([]).stands({PeerId("a"), PeerId("b")})


def test_what_is_kept_is_taken_once_and_is_bounded() -> None:
    conversations = Conversations()
    for count in range(MAX_KEPT + 1):
        conversations.keep(f"{count}", kept([count]))
    assert conversations.take("0") is None
    last = conversations.take(f"{MAX_KEPT}")
    assert last is not None
    assert list(last.ids) == [MAX_KEPT]
    assert conversations.take(f"{MAX_KEPT}") is None


async def turn(mesh: Any, prompt: str, name: str = NAME, **sampling: Any) -> Any:
    request = CompletionRequest(
        model=ModelId("toy"),
        prompt=prompt,
        session=name,
        sampling=Sampling(ignore_eos=True, **sampling),
    )
    answer = mesh.an_answer()
    async for event in complete(mesh.client, mesh.nodes[0].address, request):
        answer.take(event)
    return answer


async def computed(mesh: Any) -> list[int]:
    return [(await mesh.status(node))["positions_computed"] for node in mesh.nodes]


async def test_every_stage_computes_the_new_tokens_of_a_second_turn_only(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        first = await turn(mesh, FIRST, max_tokens=6)
        assert first.begun.cached_tokens == 0
        before = await computed(mesh)
        # All but the last token of an answer goes through the layers.
        assert before == [first.begun.prompt_tokens + 5] * 3
        second = await turn(mesh, FIRST + first.text + " and more", max_tokens=4)
        new = second.begun.prompt_tokens - second.begun.cached_tokens
        assert second.begun.cached_tokens >= first.begun.prompt_tokens
        added = [after - so for so, after in zip(before, await computed(mesh), strict=True)]
        assert added == [new + 3] * 3
        whole = await mesh.ask(FIRST + first.text + " and more", max_tokens=4)
        assert (second.ids, second.text) == (whole.ids, whole.text)


async def test_a_conversation_that_is_kept_is_no_load_to_others(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([3, 3]) as mesh:
        await turn(mesh, FIRST, max_tokens=6)
        await trio.sleep(6.0)
        rows = await ask_peers(mesh.client, mesh.musivum.address)
        assert [row.queue_depth for row in rows] == [0, 0]
        kept = [(await mesh.status(node))["sessions"][0]["state"] for node in mesh.nodes]
        assert kept == ["parked", "parked"]


async def test_a_conversation_that_turns_back_goes_on_from_there(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([3, 3]) as mesh:
        await turn(mesh, FIRST, max_tokens=6)
        other = FIRST[:20] + "quite another end of it"
        second = await turn(mesh, other, max_tokens=6)
        assert 0 < second.begun.cached_tokens < len(FIRST)
        third = await turn(mesh, other + second.text, max_tokens=6)
        assert third.begun.cached_tokens > second.begun.cached_tokens
        assert third.ids == (await mesh.ask(other + second.text, max_tokens=6)).ids


async def test_a_stage_that_lost_the_conversation_costs_a_full_prefill_and_no_error(
    open_mesh: OpenMesh, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Sessions] = []

    class Remembered(Sessions):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            opened.append(self)

    monkeypatch.setattr(loading, "Sessions", Remembered)
    async with open_mesh([2, 2, 2]) as mesh:
        await turn(mesh, FIRST, max_tokens=6)
        await trio.sleep(0.1)
        opened[1].forget_parked()
        again = await turn(mesh, FIRST + " again", max_tokens=6)
        assert again.begun.cached_tokens == 0
        assert again.ids == (await mesh.ask(FIRST + " again", max_tokens=6)).ids


async def test_a_stage_that_left_costs_a_full_prefill_over_another(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([3, 3]) as mesh:
        first = await turn(mesh, FIRST, max_tokens=6)
        mesh.nodes[1].stop.set()
        await trio.sleep(5.0)
        await mesh.start(LayerRange(3, 6), b"z" * 32)
        again = await turn(mesh, FIRST, max_tokens=6)
        assert again.begun.cached_tokens == 0
        assert again.ids == first.ids


async def test_what_is_parked_is_let_go_in_time_at_every_stage(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([2, 2, 2]) as mesh:
        await turn(mesh, FIRST, max_tokens=6)
        held = [(await mesh.status(node))["sessions"] for node in mesh.nodes]
        assert [[one["state"] for one in each] for each in held] == [["parked"]] * 3
        await trio.sleep(MAX_PARK_SECONDS + 10.0)
        held = [(await mesh.status(node))["sessions"] for node in mesh.nodes]
        assert held == [[], [], []]
        again = await turn(mesh, FIRST, max_tokens=6)
        assert again.begun.cached_tokens == 0


async def test_without_a_name_nothing_is_kept(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([3, 3]) as mesh:
        await turn(mesh, FIRST, name="", max_tokens=6)
        await trio.sleep(0.1)
        assert [(await mesh.status(node))["sessions"] for node in mesh.nodes] == [[], []]


async def test_two_requests_under_one_name_do_not_share_a_past(
    open_mesh: OpenMesh, autojump_clock: MockClock
) -> None:
    async with open_mesh([3, 3], slots=8) as mesh:
        await turn(mesh, FIRST, max_tokens=6)
        answers: list[Any] = []

        async def ask(prompt: str) -> None:
            answers.append(await turn(mesh, prompt, max_tokens=6))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, FIRST + " one")
            nursery.start_soon(ask, FIRST + " two")
        assert sorted(answer.begun.cached_tokens > 0 for answer in answers) == [False, True]
        alone = {(await mesh.ask(FIRST + end, max_tokens=6)).text for end in (" one", " two")}
        assert {answer.text for answer in answers} == alone
