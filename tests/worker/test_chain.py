"""A model cut over several nodes answers exactly as one node does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from trio.testing import MockClock

OpenMesh = Callable[..., Any]
PROMPT = "a prompt that is longer than one chunk of eight positions"


async def alone(open_mesh: OpenMesh, **sampling: Any) -> Any:
    async with open_mesh([6]) as mesh:
        answer = await mesh.ask(PROMPT, **sampling)
        assert len(answer.chain()) == 1
        return answer


@pytest.mark.parametrize("claims", [[2, 2, 2], [1, 2, 3], [4, 2], [1, 2, 1, 1, 1]])
async def test_every_split_gives_the_tokens_of_one_node(
    open_mesh: OpenMesh, autojump_clock: MockClock, claims: list[int]
) -> None:
    reference = await alone(open_mesh, max_tokens=12)
    async with open_mesh(claims) as mesh:
        answer = await mesh.ask(PROMPT, max_tokens=12)
    assert [stop - start for _, start, stop in answer.chain()] == claims
    assert answer.ids == reference.ids
    assert answer.text == reference.text
    assert answer.done.completion_tokens == len(answer.ids) == 12
    assert answer.done.reason == "length"
