"""A store from its URL to its end: what it keeps, and how its errors leave."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from sqlalchemy import Engine, event
from trio.testing import MockClock

from musivum.store import (
    DropNode,
    PutManifest,
    PutNode,
    PutReputation,
    Saved,
    SavedManifest,
    SavedNode,
    SavedReputation,
    Store,
    open_store,
)
from tessella.core.errors import BadConfig, StoreLost, StoreUnavailable
from tessella.core.ids import ModelId, PeerId

MANIFEST = SavedManifest(model=ModelId("toy"), document=b'{"files":[]}', published_at=1.0)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/musivum.db"


@pytest.fixture
def commits() -> Iterator[list[float]]:
    """When a transaction was committed, by any engine."""
    seen: list[float] = []

    def note(_: object) -> None:
        seen.append(time.monotonic())

    event.listen(Engine, "commit", note)
    yield seen
    event.remove(Engine, "commit", note)


async def kept(url: str) -> Saved:
    async with open_store(url) as store:
        return await store.load()


async def test_what_is_saved_is_there_after_a_restart(
    url: str, a_node: Callable[..., SavedNode]
) -> None:
    reputation = SavedReputation(peer_id=PeerId("a"), joins=2, accused=1)
    async with open_store(url) as store:
        assert await store.load() == Saved()
        await store.save(PutNode(a_node("a")), PutNode(a_node("b")), PutManifest(MANIFEST))
        await store.save(PutReputation(reputation), DropNode(PeerId("b")))
        found = await store.load()
    assert found == Saved((a_node("a"),), (reputation,), (MANIFEST,))
    assert await kept(url) == found


async def test_what_is_noted_is_there_after_a_restart_even_a_cancelled_one(
    url: str, a_node: Callable[..., SavedNode]
) -> None:
    with trio.CancelScope() as scope:
        async with open_store(url) as store:
            store.note(PutNode(a_node("a", queue_depth=1)))
            store.note(PutNode(a_node("a", queue_depth=2)))
            scope.cancel()
            await trio.sleep_forever()
    assert (await kept(url)).nodes == (a_node("a", queue_depth=2),)


async def test_many_saves_at_once_are_few_commits(
    url: str, commits: list[float], a_node: Callable[..., SavedNode]
) -> None:
    async with open_store(url) as store:
        commits.clear()
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(store.save, PutNode(a_node(str(number))))
        assert 1 <= len(commits) <= 3
        assert len((await store.load()).nodes) == 100


async def test_a_save_is_committed_before_it_returns(
    url: str, commits: list[float], a_node: Callable[..., SavedNode]
) -> None:
    async with open_store(url) as store:
        for number in range(5):
            commits.clear()
            await store.save(PutNode(a_node(str(number))))
            assert len(commits) == 1


async def test_a_second_store_is_refused_and_a_third_is_not(url: str) -> None:
    async with open_store(url):
        with pytest.raises(BadConfig, match="in use by another musivum"):
            await kept(url)
    assert await kept(url) == Saved()


async def test_the_error_of_the_body_leaves_as_it_is(url: str) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with open_store(url):
            raise KeyError("mine")
    with pytest.RaisesGroup(KeyError, ValueError):
        async with open_store(url):
            raise ExceptionGroup("mine", [KeyError("a"), ValueError("b")])


async def drop_tables(store: Store) -> None:
    """What a disk may do to a database, by other means."""
    with store._database.transaction() as connection:
        connection.exec_driver_sql("DROP TABLE nodes")


async def test_a_body_is_cancelled_when_the_database_is_lost(
    url: str, a_node: Callable[..., SavedNode], autojump_clock: MockClock
) -> None:
    was_cancelled = False
    with pytest.raises(StoreLost, match="no such table"):
        async with open_store(url) as store:
            await drop_tables(store)
            store.note(PutNode(a_node()))
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                was_cancelled = True
                raise
    assert was_cancelled


async def test_all_that_a_lost_database_causes_leaves_as_one_error(
    url: str, a_node: Callable[..., SavedNode]
) -> None:
    with pytest.raises(StoreLost, match="no such table"):
        async with open_store(url) as store:
            await drop_tables(store)
            async with trio.open_nursery() as nursery:
                for number in range(3):
                    nursery.start_soon(store.save, PutNode(a_node(str(number))))


async def test_a_bug_is_not_hidden_by_a_lost_database(
    url: str, a_node: Callable[..., SavedNode]
) -> None:
    with pytest.RaisesGroup(StoreLost, KeyError):
        async with open_store(url) as store:
            await drop_tables(store)
            try:
                await store.save(PutNode(a_node()))
            except StoreLost:
                raise KeyError("a bug") from None


async def test_a_full_disk_fails_saves_and_keeps_notes_until_there_is_room(
    url: str, a_node: Callable[..., SavedNode]
) -> None:
    async with open_store(url) as store:

        def limit(pages: int) -> None:
            with store._database.transaction() as connection:
                connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

        limit(1)
        store.note(PutNode(a_node("noted", shape=b"x" * 20_000)))
        with pytest.raises(StoreUnavailable, match="disk is full"):
            await store.save(PutNode(a_node("saved", shape=b"x" * 20_000)))
        assert await store.load() == Saved()
        limit(1_000_000)
        await store.save(PutReputation(SavedReputation(peer_id=PeerId("a"))))
        assert [node.peer_id for node in (await store.load()).nodes] == ["noted"]


async def test_a_database_without_its_driver_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(BadConfig, match=r'pip install "psycopg\[binary\]"') as caught:
        await kept("postgresql://user:hidden@127.0.0.1:1/name")
    assert "hidden" not in str(caught.value)


async def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(BadConfig, match="'oracle' is not known"):
        await kept("oracle://user:hidden@host/name")
