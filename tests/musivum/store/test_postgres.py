"""A PostgreSQL of our own: what it keeps, who leads, and how a leader learns that it does not."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import trio
from sqlalchemy import inspect, make_url

from musivum.store import (
    DropNode,
    PutManifest,
    PutNode,
    PutReputation,
    Saved,
    SavedManifest,
    SavedNode,
    SavedReputation,
    open_store,
)
from musivum.store.codec import node_row
from musivum.store.migrations import MIGRATIONS, migrate
from musivum.store.postgres import (
    CHECK_SECONDS,
    NOTICE_SECONDS,
    PATIENCE_SECONDS,
    RELEASE_SECONDS,
    PostgresDatabase,
    connection_options,
    name_of,
    open_postgres,
)
from musivum.store.schema import METADATA
from tessella.core.errors import BadConfig, StoreLost, StoreUnavailable
from tessella.core.ids import ModelId, PeerId

Keeper = Callable[..., "subprocess.Popen[str]"]
TAKEOVER_SECONDS = 10.0

MANIFEST = SavedManifest(model=ModelId("toy"), document=b"\0\xff{}", published_at=1.5)
REPUTATION = SavedReputation(peer_id=PeerId("a"), joins=2**63 - 1)


@pytest.fixture
def database(postgres: Any) -> str:
    """The name of an empty one."""
    return str(postgres.new_database())


@pytest.fixture
def url(postgres: Any, database: str) -> str:
    return str(postgres.url(database))


def opened(url: str) -> PostgresDatabase:
    return open_postgres(make_url(url).set(drivername="postgresql+psycopg"))


def said(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def test_a_name_has_nothing_secret() -> None:
    url = make_url("postgresql://user:hidden@host:5433/name?password=hidden&sslmode=require")
    assert name_of(url) == "postgresql://host:5433/name"
    assert name_of(make_url("postgresql:///name")) == "postgresql:///name"


def test_a_connection_is_watched_unless_the_url_says_how() -> None:
    options = connection_options(make_url("postgresql://host/name?keepalives_idle=60"))
    assert "keepalives_idle" not in options
    assert options["tcp_user_timeout"] == 8000
    assert options["application_name"] == "musivum"


def test_a_leader_knows_that_it_is_none_before_another_may_lead() -> None:
    assert NOTICE_SECONDS < RELEASE_SECONDS
    assert CHECK_SECONDS + PATIENCE_SECONDS < RELEASE_SECONDS


@pytest.mark.mesh
async def test_what_is_saved_is_there_after_a_restart(
    url: str, a_node: Callable[..., SavedNode]
) -> None:
    odd = a_node("ü", device="half \ud800 and \0")
    async with open_store(url) as store:
        assert await store.load() == Saved()
        await store.save(PutNode(odd), PutNode(a_node("b")), PutManifest(MANIFEST))
        await store.save(PutReputation(REPUTATION), DropNode(PeerId("b")))
        store.note(PutNode(a_node("noted")))
    async with open_store(url) as store:
        assert await store.load() == Saved((a_node("noted"), odd), (REPUTATION,), (MANIFEST,))


@pytest.mark.mesh
def test_an_old_database_is_brought_up_with_its_data(
    url: str, a_node: Callable[..., SavedNode]
) -> None:
    with closing(opened(url)) as old:
        migrate(old.transaction, "old", MIGRATIONS[:1])
        node = a_node(weights="")
        row = node_row(node)
        # Of that age, a node said less.
        less = {**row, "rest": row["rest"].replace(',"weights":"","canary":false', "")}
        with old.transaction() as connection:
            connection.execute(METADATA.tables["nodes"].insert(), less)
        old.migrate()
        assert old.read() == Saved(nodes=(node,))
        with old.transaction() as connection:
            found = inspect(connection)
            made = {
                table: [column["name"] for column in found.get_columns(table)]
                for table in found.get_table_names()
            }
    assert made == {table.name: list(table.c.keys()) for table in METADATA.tables.values()}


@pytest.mark.mesh
async def test_the_database_of_a_newer_program_is_refused_without_its_password(
    postgres: Any, database: str
) -> None:
    async with open_store(postgres.url(database)):
        pass
    postgres.execute("INSERT INTO migrations VALUES (40, 'tomorrow', 0)", database)
    with pytest.raises(BadConfig) as caught:
        async with open_store(postgres.tcp_url(database)):
            pass
    assert str(caught.value) == (
        f"postgresql://127.0.0.1:{postgres.port}/{database} is of a newer musivum: "
        f"it is at migration 40, and this one knows {len(MIGRATIONS)}"
    )


@pytest.mark.mesh
async def test_who_is_not_let_in_is_told_so_without_the_password(
    postgres: Any, database: str
) -> None:
    with pytest.raises(StoreUnavailable, match="password authentication failed") as caught:
        async with open_store(postgres.tcp_url(database, "wr0ng")):
            pass
    assert "wr0ng" not in str(caught.value)
    with pytest.raises(StoreUnavailable, match="does not exist"):
        async with open_store(postgres.url("no_such_database")):
            pass
    with pytest.raises(BadConfig, match='invalid connection option "colour"'):
        async with open_store(postgres.url(database) + "&colour=red"):
            pass
    with pytest.raises(StoreUnavailable, match="refused"):
        async with open_store("postgresql://user:hidden@127.0.0.1:1/name"):
            pass


@pytest.mark.mesh
def test_both_ends_watch_the_connection_and_a_commit_is_durable(
    postgres: Any, database: str
) -> None:
    postgres.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
    with closing(opened(postgres.tcp_url(database))) as watched, watched.transaction() as session:
        wanted = {
            "application_name": "musivum",
            "tcp_keepalives_idle": "10",
            "tcp_keepalives_interval": "5",
            "tcp_keepalives_count": "2",
            "tcp_user_timeout": "20s",
            "idle_session_timeout": "20s",
            "synchronous_commit": "on",
        }
        shown = {name: session.exec_driver_sql(f"SHOW {name}").scalar() for name in wanted}
    if shown["tcp_user_timeout"] == "20000":
        shown["tcp_user_timeout"] = "20s"
    assert shown == wanted


@pytest.mark.mesh
async def test_a_full_disk_undoes_the_batch_and_passes(
    postgres: Any, database: str, a_node: Callable[..., SavedNode]
) -> None:
    full = """
        CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$
    """
    async with open_store(postgres.url(database)) as store:
        postgres.execute(full, database)
        postgres.execute(
            "CREATE TRIGGER full_disk BEFORE INSERT ON reputation EXECUTE FUNCTION full_disk()",
            database,
        )
        with pytest.raises(StoreUnavailable, match="could not extend file"):
            await store.save(PutNode(a_node()), PutReputation(REPUTATION))
        assert await store.load() == Saved()
        postgres.execute("DROP TRIGGER full_disk ON reputation", database)
        await store.save(PutNode(a_node()), PutReputation(REPUTATION))
        assert await store.load() == Saved((a_node(),), (REPUTATION,))


@pytest.mark.mesh
def test_a_standby_leads_when_the_leader_is_killed(
    postgres: Any, database: str, keeper: Keeper, record_property: Callable[[str, object], None]
) -> None:
    url = postgres.url(database)
    leader = keeper(url, 3)
    assert [said(leader) for _ in range(4)] == ["open", "0", "1", "2"]
    standby = keeper(url, 1)
    assert said(standby) == "waits"
    assert len(postgres.leaders(database)) == 1
    killed = time.monotonic()
    leader.kill()
    assert said(standby) == "open"
    took = time.monotonic() - killed
    record_property("takeover_seconds", round(took, 2))
    assert took < TAKEOVER_SECONDS
    assert said(standby) == "3"


@pytest.mark.mesh
async def test_leaders_of_other_databases_do_not_wait(postgres: Any, url: str) -> None:
    with trio.fail_after(10):
        async with open_store(url), open_store(postgres.url(postgres.new_database())):
            pass


@pytest.mark.mesh
async def test_a_standby_may_be_cancelled(url: str) -> None:
    waits: list[None] = []
    async with open_store(url):
        with trio.move_on_after(1.2) as scope:
            async with open_store(url, wait=lambda: waits.append(None)):
                pytest.fail("two lead")
        assert scope.cancelled_caught
    assert waits == [None]


@pytest.mark.mesh
async def test_an_idle_leader_that_lost_its_session_ends(postgres: Any, database: str) -> None:
    began = trio.current_time()
    with pytest.raises(StoreLost, match=f"^postgresql:///{database}: .*terminat"):
        async with open_store(postgres.url(database)) as store:
            (pid,) = postgres.leaders(database)
            postgres.execute(f"SELECT pg_terminate_backend({pid})")
            await trio.sleep_forever()
    assert trio.current_time() - began < CHECK_SECONDS + 2
    with pytest.raises(StoreLost):
        await store.load()


@pytest.mark.mesh
async def test_a_save_of_a_leader_that_lost_its_session_is_never_made(
    postgres: Any,
    database: str,
    a_node: Callable[..., SavedNode],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(StoreLost):
        async with open_store(postgres.url(database)) as store:
            (pid,) = postgres.leaders(database)
            postgres.execute(f"SELECT pg_terminate_backend({pid})")
            for _ in range(2):
                with trio.CancelScope(shield=True), pytest.raises(StoreLost):
                    await store.save(PutNode(a_node("a")), PutNode(a_node("b")))
            await trio.sleep_forever()
    assert postgres.execute("SELECT * FROM nodes", database) == []
    assert caplog.records == []  # the error says it all, in the one line that is written


@pytest.mark.mesh
async def test_a_server_that_does_not_answer_is_waited_for_so_long(
    postgres: Any,
    database: str,
    a_node: Callable[..., SavedNode],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PostgresDatabase, "patience", 0.5)
    began = trio.current_time()
    with pytest.raises(StoreLost, match="no answer within"):
        async with open_store(postgres.url(database)) as store:
            (pid,) = postgres.leaders(database)
            os.kill(pid, signal.SIGSTOP)
            try:
                await store.save(PutNode(a_node()))
            finally:
                os.kill(pid, signal.SIGCONT)
    assert trio.current_time() - began < 5
