"""Standings as rows: what was written is read, and a row that says something else ends it."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, update

from musivum.audits.keeping import (
    Epoch,
    add_epoch,
    drop_epochs,
    read_epochs,
    read_standings,
    write_standings,
)
from musivum.audits.standing import Standing
from musivum.nodes.reputation import AuditCounts
from musivum.store.audit_tables import STANDINGS
from musivum.store.memory import MemoryStore
from tessella.core.audits import Finding, Record, Verdict
from tessella.core.errors import StoreLost
from tessella.core.ids import PeerId

FULL = Standing(
    peer_id=PeerId("w"),
    hops=1234,
    suspect_left=7,
    barred_until=1_800_000_000.5,
    barred_for='said "no" — twice',
    owed=3,
    fined=2**62,
    record=Record(tuple(Finding(each, "a", bytes([9]) * 16) for each in Verdict)),
    shown=(True, False, True),
    ids=(False, False, True),
    benched_until=1_800_000_050.5,
    last_auditor="a",
    outvoted=2,
    unheard_until=1_800_000_100.5,
    counts=AuditCounts(1.5, 2.25, 0.125, 1_799_999_999.0),
)
BLANK = Standing(peer_id=PeerId("x"))


async def test_what_is_written_is_read() -> None:
    def work(connection: Connection) -> list[Standing]:
        write_standings(connection, {FULL.peer_id: FULL, BLANK.peer_id: BLANK})
        return read_standings(connection)

    assert await MemoryStore().transact(work) == [FULL, BLANK]


async def test_a_later_one_takes_the_place_of_the_first_and_none_drops_it() -> None:
    many = {PeerId(str(n)): Standing(peer_id=PeerId(str(n)), hops=n) for n in range(2500)}

    def work(connection: Connection) -> list[Standing]:
        write_standings(connection, many)
        write_standings(connection, {peer: each.after_hop() for peer, each in many.items()})
        write_standings(connection, dict.fromkeys(list(many)[1:]))
        return read_standings(connection)

    assert await MemoryStore().transact(work) == [Standing(peer_id=PeerId("0"), hops=1)]


@pytest.mark.parametrize(
    "rest", ["", "[]", "{}", '{"findings":[["odd","a",""]]}', '{"findings":[["passed","a","x"]]}']
)
async def test_a_row_that_cannot_be_read_is_no_acquittal(rest: str) -> None:
    def work(connection: Connection) -> list[Standing]:
        write_standings(connection, {FULL.peer_id: FULL})
        connection.execute(update(STANDINGS).values(rest=rest))
        return read_standings(connection)

    with pytest.raises(StoreLost, match="'w' of standings"):
        await MemoryStore().transact(work)


async def test_epochs_are_kept_until_they_are_told() -> None:
    first, second = (Epoch(number, bytes([number]) * 32, 10.5) for number in (1, 2))

    def work(connection: Connection) -> list[list[Epoch]]:
        add_epoch(connection, second)
        add_epoch(connection, first)
        before = read_epochs(connection)
        drop_epochs(connection, [first])
        return [before, read_epochs(connection)]

    assert await MemoryStore().transact(work) == [[first, second], [second]]
