from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tessella.core.addresses import parse_peer
from tessella.core.errors import BadConfig
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.pauses import Why
from tessella.core.schedule import Span
from tessella.engine.device import Device
from tessella.worker.config import WorkerConfig
from tessella.worker.watches import watch_schedule, watches_of

MUSIVUM = parse_peer(f"/ip4/127.0.0.1/tcp/1/p2p/{Identity(b'1' * 32).peer_id}")
OFFICE = (Span.parse("mon-fri 09:00-17:30"),)


def a_config(**given: Any) -> WorkerConfig:
    return WorkerConfig(
        musivum=(MUSIVUM,), model=ModelId("toy"), weights=Path("toy"), claim_mb=64, **given
    )


def test_nothing_pauses_a_node_by_itself_unless_it_is_asked_to() -> None:
    assert watches_of(a_config(), Device.CPU, float) == []


def test_a_schedule_is_heeded_where_there_is_one() -> None:
    found = watches_of(a_config(pause_schedule=OFFICE), Device.CPU, float)
    assert [why for why, _ in found] == [Why.SCHEDULE]


def test_a_node_that_computes_on_the_cpu_cannot_make_way_on_a_gpu() -> None:
    with pytest.raises(BadConfig, match="auto_pause: "):
        watches_of(a_config(auto_pause=True), Device.CPU, float)


async def test_a_schedule_is_looked_at_each_minute(autojump_clock: MockClock) -> None:
    # A Tuesday.
    began = datetime(2024, 1, 2, 8, 58)
    said: list[bool] = []

    def now() -> datetime:
        return began + timedelta(seconds=trio.current_time() - started)

    started = trio.current_time()
    with trio.move_on_after(9 * 3600.0):
        await watch_schedule(OFFICE, now, said.append)
    paused = [minute for minute, is_paused in enumerate(said) if is_paused]
    assert paused == list(range(2, 2 + 8 * 60 + 30))
