"""A caller's own work in one transaction: on a real store and on the one in memory."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from sqlalchemy import Connection, insert, select
from trio.testing import wait_all_tasks_blocked

from musivum.store import PutReputation, SavedReputation, Transacts, errands, open_store
from musivum.store import writer as writer_module
from musivum.store.ledger_tables import BALANCES
from musivum.store.memory import MemoryStore
from musivum.store.rows import add
from tessella.core.errors import BadRequest, LocalError, StoreLost, StoreUnavailable
from tessella.core.ids import PeerId


def put(account: str, micro: int = 1) -> Callable[[Connection], int]:
    """Work that adds to an account and returns what it has."""

    def work(connection: Connection) -> int:
        row = {"account": account, "micro": micro, "earned": 0, "spent": 0, "checked": 0}
        add(connection, BALANCES, [row])
        asked = select(BALANCES.c.micro).where(BALANCES.c.account == account)
        return int(connection.execute(asked).scalar_one())

    return work


def accounts(connection: Connection) -> dict[str, int]:
    asked = select(BALANCES.c.account, BALANCES.c.micro)
    return {row.account: row.micro for row in connection.execute(asked)}


@asynccontextmanager
async def opened(kind: str, path: Path, postgres: Any) -> AsyncIterator[Transacts]:
    if kind == "memory":
        yield MemoryStore()
        return
    url = f"sqlite:///{path}/m.db" if kind == "sqlite" else postgres.url(postgres.new_database())
    async with open_store(url) as store:
        yield store


KINDS = ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.mesh)]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """`async with store:` one of each."""
    kind = request.param
    return opened(kind, tmp_path, request.getfixturevalue(kind) if kind == "postgres" else None)


async def test_work_is_done_and_what_it_returns_is_returned(store: Any) -> None:
    async with store as opened:
        assert await opened.transact(put("a", 5)) == 5
        assert await opened.transact(put("a", -2)) == 3
        assert await opened.transact(accounts) == {"a": 3}


async def test_what_raises_is_undone_and_others_are_not(store: Any) -> None:
    def half(connection: Connection) -> None:
        put("b")(connection)
        raise BadRequest("no more")

    async with store as opened:
        await opened.transact(put("a"))
        with pytest.raises(BadRequest, match="no more"):
            await opened.transact(half)
        assert await opened.transact(accounts) == {"a": 1}
        assert await opened.transact(put("a")) == 2


async def test_many_may_wait(store: Any) -> None:
    found: list[int] = []

    async def one(kept: Transacts) -> None:
        found.append(await kept.transact(put("a")))

    async with store as opened, trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(one, opened)
    assert sorted(found) == list(range(1, 51))


async def test_it_is_there_after_a_restart_beside_what_is_saved(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/m.db"
    reputation = SavedReputation(peer_id=PeerId("a"))
    async with open_store(url) as store, trio.open_nursery() as nursery:
        nursery.start_soon(store.save, PutReputation(reputation))
        nursery.start_soon(store.transact, put("a"))
    async with open_store(url) as store:
        assert (await store.load()).reputation == (reputation,)
        assert await store.transact(accounts) == {"a": 1}


async def test_a_row_that_the_tables_refuse_ends_the_program(tmp_path: Path) -> None:
    row = {"account": "a", "micro": 0, "earned": -1, "spent": 0, "checked": 0}
    with pytest.raises(StoreLost, match="CHECK constraint failed"):
        async with open_store(f"sqlite:///{tmp_path}/m.db") as store:
            with trio.CancelScope(shield=True), pytest.raises(StoreLost):
                await store.transact(lambda connection: connection.execute(insert(BALANCES), row))
            await trio.sleep_forever()
    with pytest.raises(StoreLost):
        await store.transact(accounts)


async def test_a_store_that_is_closed_does_no_work(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/m.db") as store:
        pass
    with pytest.raises(LocalError, match="the store is closed"):
        await store.transact(accounts)


async def test_where_too_many_wait_the_next_is_sent_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert errands.MAX_ERRANDS > 1000
    monkeypatch.setattr(writer_module, "MAX_ERRANDS", 3)
    gate = threading.Event()
    async with open_store(f"sqlite:///{tmp_path}/m.db") as store, trio.open_nursery() as nursery:
        nursery.start_soon(store.transact, lambda _: gate.wait(5))
        await wait_all_tasks_blocked()
        for _ in range(3):
            nursery.start_soon(store.transact, put("a"))
        await wait_all_tasks_blocked()
        with pytest.raises(StoreUnavailable, match="3 transactions wait"):
            await store.transact(accounts)
        gate.set()


async def test_who_leaves_does_not_undo_it(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/m.db") as store:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.transact, put("a"))
            await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        assert await store.transact(accounts) == {"a": 1}


async def test_a_store_in_memory_raises_what_a_test_wants() -> None:
    store = MemoryStore()
    store.error = StoreUnavailable("no room")
    with pytest.raises(StoreUnavailable):
        await store.transact(put("a"))
    store.error = None
    assert await store.transact(accounts) == {}
