"""A node as a program: when it ends, and what it does besides serving."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import p2p.supervisor
from tessella.catalogue import models_directory
from tessella.cli import node
from tessella.cli.node import STOP_SECONDS, Ending, Manners, serve, tidy_up
from tessella.cli.signals import Interrupts
from tessella.core.addresses import parse_peer
from tessella.core.errors import BadConfig
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.worker.config import WorkerConfig

MUSIVUM = parse_peer(f"/ip4/127.0.0.1/tcp/1/p2p/{Identity(b'1' * 32).peer_id}")
DRAIN = 30.0


async def takes(ending: Ending, seconds: float) -> float:
    """How long a node runs that was told to stop after a second, and takes so long to leave."""
    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ending.run)
        with ending.scope:
            await trio.sleep(1.0)
            ending.stop.set()
            await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    return trio.current_time() - started - 1.0


@pytest.mark.parametrize(
    ("has_joined", "wants", "takes_at_most"),
    [
        pytest.param(True, 10.0, 10.0, id="its sessions end"),
        pytest.param(True, DRAIN + 1.0, DRAIN + 1.0, id="they do not, and it leaves"),
        pytest.param(True, 1e6, DRAIN + STOP_SECONDS, id="it hangs"),
        pytest.param(False, 1e6, STOP_SECONDS, id="it still tries to join"),
    ],
)
async def test_a_node_that_was_told_to_stop_has_its_time_and_no_more(
    autojump_clock: MockClock, has_joined: bool, wants: float, takes_at_most: float
) -> None:
    ending = Ending(DRAIN)
    ending.has_joined = has_joined
    assert await takes(ending, wants) == pytest.approx(takes_at_most, abs=0.1)


async def test_with_the_end_of_standard_input_it_waits_for_no_session(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stdin_closed() -> None:
        await trio.sleep(5.0)

    monkeypatch.setattr(node, "stdin_closed", stdin_closed)
    ending = Ending(DRAIN)
    ending.has_joined = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ending.run)
        nursery.start_soon(ending.hurry_with_stdin)
        with ending.scope:
            await trio.sleep_forever()
        nursery.cancel_scope.cancel()
    assert ending.stop.is_set()
    assert trio.current_time() == pytest.approx(5.0 + STOP_SECONDS, abs=0.1)


def a_config(**given: Any) -> WorkerConfig:
    settings = {"musivum": (MUSIVUM,), "model": ModelId("toy"), "claim_mb": 64}
    return WorkerConfig(**settings, weights=Path("toy"), **given)  # type: ignore[arg-type]


async def test_the_collector_is_spared_before_there_is_a_host_or_a_shard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []

    async def supervise(open_and_serve: Callable[[], Awaitable[None]]) -> None:
        done.append("supervised")

    monkeypatch.setattr(node, "spare_the_collector", lambda: done.append("spared"))
    monkeypatch.setattr(p2p.supervisor, "supervise", supervise)
    manners = Manners(as_json=True, until_stdin_closes=False, join_after_stdin=False)
    await serve(a_config(), Identity(b"n" * 32), manners, Interrupts())
    assert done == ["spared", "supervised"]


@pytest.mark.parametrize("elsewhere", [None, Path("/elsewhere")])
async def test_what_is_pruned_is_where_the_models_lie(
    home: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: Path | None
) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(node, "prune", lambda *args: asked.append(args))
    await tidy_up(a_config(models_dir=elsewhere, model_cache_prune="dry-run"))
    ((directory, weights, mode, _),) = asked
    assert directory == (elsewhere or models_directory())
    assert (weights, mode) == (Path("toy"), "dry-run")


async def test_a_cache_that_cannot_be_read_ends_no_node(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def prune(*_: object) -> None:
        raise BadConfig("cannot read /models: Permission denied")

    monkeypatch.setattr(node, "prune", prune)
    with caplog.at_level(logging.WARNING):
        await tidy_up(a_config(model_cache_prune="on"))
    assert "cannot read /models" in caplog.text
