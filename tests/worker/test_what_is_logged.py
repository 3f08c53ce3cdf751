"""What people say to a model, and what proves who somebody is, is in no log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from trio.testing import MockClock

from tessella.core.completions import CompletionRequest
from tessella.core.errors import TessellaError
from tessella.core.sampling import Sampling

OpenMesh = Callable[..., Any]
SECRET = "the doctor said that it is the left knee"


async def test_no_text_of_a_request_is_logged_whatever_becomes_of_it(
    open_mesh: OpenMesh,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with open_mesh([3, 3]) as mesh:
            answer = (await mesh.ask(SECRET, max_tokens=5)).text
            with pytest.raises(TessellaError) as caught:
                await mesh.ask(SECRET * 20, max_tokens=5)
            logging.getLogger("tests").info("too long for the context: %s", caught.value)
            mesh.crash(mesh.nodes[1])
            with pytest.raises(TessellaError):
                await mesh.ask(SECRET, max_tokens=3)
    assert caplog.records
    assert all(word not in caplog.text for word in ("doctor", "left knee"))
    assert answer not in caplog.text


async def test_no_key_is_logged(
    open_mesh: OpenMesh, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with open_mesh([6]) as mesh:
            await mesh.ask("hello", max_tokens=2)
            seeds = [bytes([number]) * 32 for number in (1, ord("m"), ord("c"))]
    for seed in seeds:
        assert seed.hex() not in caplog.text
        assert repr(seed) not in caplog.text


def test_a_request_that_is_shown_by_accident_shows_its_text() -> None:
    """What the tests above would see: nothing hides it but that nobody logs it."""
    request = CompletionRequest(model="toy", prompt=SECRET, sampling=Sampling())  # type: ignore[arg-type]
    assert SECRET in repr(request)
