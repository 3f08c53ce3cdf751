"""The conversation about tickets and pay over libp2p, in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from trio.testing import MockClock

from musivum.audit_room import NoAudits
from musivum.config import MusivumConfig
from musivum.doors.ledger import LedgerDoor
from musivum.testing import Caller, a_registration, calling, clock
from musivum.testing_http import Door, answering
from p2p.testing import MemoryNetwork
from tessella.core.errors import NotAuthorized, PeerGone
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    LEDGER,
    Accepted,
    Ask,
    AskAudit,
    AskCredits,
    AskGrant,
    AskPeers,
    AuditReport,
    AuditTask,
    Document,
    Fail,
    Granted,
    Marks,
    Message,
    Ready,
    Settle,
    Settled,
    Signed,
    SignedOrder,
)
from tessella.core.proofs import pack_batch
from tessella.core.settlement import Outcome, decode_outcomes
from tessella.core.tickets import open_ticket
from tests.core.work import MUSIVUM, Work, identity

SEEDS = [bytes([number]) * 32 for number in (1, 2, 3)]
CONFIG = MusivumConfig(min_vram_mb=0)
GRANT = AskGrant(ModelId("small"), 64, False, b"")
REPORT = AuditReport(
    audit_id=b"a" * 16,
    found="measured",
    tokens=1,
    median=0.1,
    worst=0.2,
    gain=1.0,
    reference=b"r" * 32,
)


@asynccontextmanager
async def opened(
    config: MusivumConfig = CONFIG,
) -> AsyncIterator[tuple[Door, Caller]]:
    """A musivum whose small model one node serves, and a client with a key at its ledger."""
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM.seed, config) as door,
        calling(net, SEEDS[0], door.peer) as node,
        calling(net, SEEDS[1], door.peer, LEDGER) as client,
    ):
        await node.register(replace(a_registration(), claim_mb=64, wanted=LayerRange(0, 12)))
        assert await node.call(Ready(LayerRange(0, 12))) == Accepted()
        yield door, client


def failed_with(answer: Message) -> str:
    assert isinstance(answer, Fail)
    return answer.code


def outcomes(answer: Message) -> list[Outcome]:
    assert isinstance(answer, Settled)
    return decode_outcomes(answer.outcomes)


async def test_a_client_with_a_key_gets_a_ticket(autojump_clock: MockClock) -> None:
    async with opened() as (door, client):
        answer = await client.call(GRANT)
        assert isinstance(answer, Granted)
        ticket = open_ticket(answer.ticket, answer.signature, {door.peer.peer_id})
        assert (ticket.requester, ticket.tier) == (client.peer_id, "leech")
        (stage,) = ticket.chain
        assert stage.peer_id == Identity(SEEDS[0]).peer_id
        assert answer.addrs == door.opened.rooms.books.roster.node(stage.peer_id).row.addrs


async def test_a_refusal_leaves_the_stream_usable(autojump_clock: MockClock) -> None:
    async with opened() as (_, client):
        assert failed_with(await client.call(replace(GRANT, max_tokens=0))) == "bad_request"
        unknown = replace(GRANT, model=ModelId("unknown"))
        assert failed_with(await client.call(unknown)) == "unknown_model"
        nameless = replace(GRANT, anonymous=True)
        assert failed_with(await client.call(nameless)) == "unknown_worker"
        assert isinstance(await client.call(GRANT), Granted)


async def test_a_call_is_let_in_once_and_only_its_own(autojump_clock: MockClock) -> None:
    async with opened() as (_, client):
        signed = client.sign(client.a_call(GRANT))
        assert isinstance(await client.ask(signed), Granted)
        assert failed_with(await client.ask(signed)) == "call_replayed"
        old = client.sign(replace(client.a_call(GRANT), created=clock() - 61))
        assert failed_with(await client.ask(old)) == "clock_skew"
        other = replace(client.a_call(GRANT), peer_id=Identity(SEEDS[2]).peer_id)
        assert failed_with(await client.ask(client.sign(other))) == "not_authorized"


@pytest.mark.parametrize(
    "message", [AskPeers(ModelId("")), Ask("/peers", b""), Settle(b"torn"), Signed(b"x", b"y")]
)
async def test_what_breaks_the_rules_ends_the_stream(
    message: Message, autojump_clock: MockClock
) -> None:
    async with opened() as (_, client):
        answer = await client.ask(message)
        assert failed_with(answer) in ("out_of_turn", "bad_frame")
        with pytest.raises(PeerGone):
            await client.ask(message)


async def test_a_node_may_not_register_at_this_door(autojump_clock: MockClock) -> None:
    async with opened() as (door, client):
        assert failed_with(await client.register()) == "out_of_turn"
        assert len(door.opened.rooms.books.roster) == 1


async def test_a_private_mesh_pays_whom_it_lets_in(autojump_clock: MockClock) -> None:
    node, stranger = (Identity(seed).peer_id for seed in SEEDS[:2])
    async with opened(replace(CONFIG, allow=(node,))) as (_, client):
        for asked in (GRANT, AskCredits(), AskAudit()):
            assert failed_with(await client.call(asked)) == "worker_not_authorized"
        assert client.peer_id == stranger


async def test_proofs_are_paid_whoever_brings_them(autojump_clock: MockClock) -> None:
    work = Work([identity(1), identity(2)], requester=identity(9).peer_id)
    async with opened() as (door, client):
        first, second = work.proof(0), work.proof(1)
        (told,) = outcomes(await client.ask(Settle(pack_batch([first]))))
        assert told.became == "waiting"
        altered = replace(second, signature=bytes(64))
        told, refused = outcomes(await client.ask(Settle(pack_batch([second, altered]))))
        assert (told.became, told.micro) == ("paid", 500_000)
        assert (refused.became, refused.code) == ("refused", "bad_signature")
        (again,) = outcomes(await client.ask(Settle(pack_batch([first]))))
        assert (again.became, again.micro) == ("already_paid", 500_000)
        assert await door.opened.rooms.ledger.balance(identity(1).peer_id) == 500_000


async def test_whoever_asks_is_told_its_own_account(autojump_clock: MockClock) -> None:
    async with opened() as (_, client):
        work = Work([client.identity])
        await client.ask(Settle(pack_batch([work.proof(0)])))
        answer = await client.call(AskCredits())
        assert isinstance(answer, Document)
        account = json.loads(answer.document)
        assert account["peer_id"] == client.peer_id
        assert (account["micro"], account["credits"], account["tier"]) == (500_000, 0.5, "standard")
        ticket = await client.call(GRANT)
        assert isinstance(ticket, Granted)
        tier = open_ticket(ticket.ticket, ticket.signature, {MUSIVUM.peer_id}).tier
        assert tier == "standard"


async def test_work_that_was_granted_is_paid(autojump_clock: MockClock) -> None:
    async with opened() as (door, client):
        granted = await client.call(GRANT)
        assert isinstance(granted, Granted)
        ticket = open_ticket(granted.ticket, granted.signature, {door.peer.peer_id})
        work = Work([Identity(SEEDS[0])], layers_each=12, issued_at=clock())
        work.ticket, work.payload, work.signature = ticket, granted.ticket, granted.signature
        (told,) = outcomes(await client.ask(Settle(pack_batch([work.proof(0, 40)]))))
        assert (told.became, told.micro) == ("paid", 12 * 40 * 1000)


async def test_the_minted_of_a_day_ends_where_the_operator_says(autojump_clock: MockClock) -> None:
    async with opened(replace(CONFIG, mint_daily_cap=1)) as (_, client):
        paid = []
        for number in range(3):
            work = Work([identity(1)], request_id=bytes([number]) * 16, layers_each=16)
            (told,) = outcomes(await client.ask(Settle(pack_batch([work.proof(0)]))))
            paid.append(told.micro)
        assert paid == [800_000, 200_000, 0]


ORDER = SignedOrder(b"o", b"s")
TASK = AuditTask(
    audit_id=b"a" * 16,
    proof=b"p",
    proof_signature=b"s",
    inputs=ORDER,
    inputs_addrs=(),
    outputs=ORDER,
    outputs_addrs=(),
)


@dataclass
class Auditing(NoAudits):
    """Has one task for everybody, and takes reports of it alone."""

    heard: list[Message]

    async def next_task(self, caller: PeerId) -> AuditTask | None:
        return TASK

    async def report(self, caller: PeerId, report: AuditReport) -> None:
        if report.audit_id != TASK.audit_id:
            raise NotAuthorized("not yours")
        self.heard.append(report)

    async def marks(self, caller: PeerId, marks: Marks) -> None:
        self.heard.append(marks)


async def test_who_has_no_audit_and_is_no_canary_is_told_so(autojump_clock: MockClock) -> None:
    async with opened() as (_, client):
        assert await client.call(AskAudit()) == Accepted()
        for message in (REPORT, Marks(())):
            assert failed_with(await client.call(message)) == "not_authorized"


async def test_where_nothing_is_audited_auditors_are_heard_politely() -> None:
    audits, caller = NoAudits(), Identity(SEEDS[0]).peer_id
    assert await audits.next_task(caller) is None
    await audits.report(caller, REPORT)
    await audits.marks(caller, Marks(()))
    assert (audits.barred(caller), audits.suspects(caller), audits.weight(caller)) == (
        None,
        False,
        1.0,
    )


async def test_auditors_get_tasks_and_are_heard(autojump_clock: MockClock) -> None:
    async with opened() as (door, client):
        audits = Auditing([])
        ledger_door = LedgerDoor(CONFIG, replace(door.opened.rooms, audits=audits))

        async def said(message: Message) -> Message:
            return await ledger_door.answered(client.sign(client.a_call(message)), client.peer_id)

        assert await said(AskAudit()) == TASK
        assert await said(REPORT) == Accepted()
        assert await said(Marks(())) == Accepted()
        assert audits.heard == [REPORT, Marks(())]
        with pytest.raises(NotAuthorized):
            await said(replace(REPORT, audit_id=b"b" * 16))


async def test_frames_are_counted_with_those_of_the_tracker(autojump_clock: MockClock) -> None:
    async with opened() as (door, client):
        await client.call(GRANT)
        assert door.opened.page.document()["frames"]["sent"]["Granted"] == 1
        await client.call(replace(GRANT, max_tokens=0))
        assert b'musivum_refused_total{code="bad_request"} 1.0' in door.opened.metrics.text()
