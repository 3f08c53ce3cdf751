"""What a node says about work and its pay: to a real musivum, over libp2p and over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from musivum.testing import QUIET, a_registration, clock
from musivum.testing_http import Door, answering
from p2p.testing import MemoryNetwork
from tessella.core.errors import BadFrame, OutOfTurn, RemoteFailure
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    Accepted,
    AskAudit,
    AskCredits,
    AskGrant,
    AuditReport,
    AuditTask,
    Document,
    Granted,
    Marks,
    Message,
    Ready,
    SignedOrder,
)
from tessella.core.proofs import SignedProof
from tessella.core.settlement import Became, Outcome
from tessella.core.tickets import open_ticket
from tessella.worker.musivum_http import HttpMusivum
from tessella.worker.musivum_ledger import answered_over_http, asked_over_http
from tessella.worker.tracker import Tracker
from tests.core.work import MUSIVUM, Work

NODE = Identity(b"n" * 32)
CONFIG = replace(QUIET, min_vram_mb=0, dial_back=False)
URL = "http://10.9.9.9"
GRANT = AskGrant(ModelId("small"), 64, True, b"")
REPORT = AuditReport(
    audit_id=b"a" * 16,
    found="measured",
    tokens=1,
    median=0.1,
    worst=0.2,
    gain=1.0,
    reference=b"r" * 32,
)


@dataclass(frozen=True)
class Ways:
    """One node's two ways to a musivum whose model it serves."""

    door: Door
    tracker: Tracker
    http: HttpMusivum

    def ask(self, way: str) -> Callable[[Message], Awaitable[Message]]:
        return self.tracker.ledger_call if way == "libp2p" else self.http.ledger

    def settle(self, way: str) -> Callable[[Sequence[SignedProof]], Awaitable[list[Outcome]]]:
        return self.tracker.settle if way == "libp2p" else self.http.settle


@asynccontextmanager
async def ways() -> AsyncIterator[Ways]:
    net = MemoryNetwork()
    async with answering(net, MUSIVUM.seed, CONFIG) as door, net.host(NODE) as host:
        http = HttpMusivum(
            client=door.client, url=URL, peer_id=door.peer.peer_id, identity=NODE, clock=clock
        )
        tracker = Tracker(host, NODE, [door.peer], clock)
        whole = LayerRange(0, 12)
        asked = replace(a_registration(), claim_mb=64, wanted=whole, addrs=host.address.addrs)
        await tracker.call(asked)
        await tracker.call(Ready(whole))
        yield Ways(door, tracker, http)
        await tracker.aclose()


BOTH = pytest.mark.parametrize("way", ["libp2p", "http"])


@BOTH
async def test_a_ticket_is_the_same_on_both_ways(autojump_clock: MockClock, way: str) -> None:
    async with ways() as both:
        granted = await both.ask(way)(GRANT)
        assert isinstance(granted, Granted)
        ticket = open_ticket(granted.ticket, granted.signature, {both.door.peer.peer_id})
        assert (ticket.requester, ticket.max_tokens) == ("anonymous", 64)
        assert [stage.peer_id for stage in ticket.chain] == [NODE.peer_id]
        row = both.door.opened.rooms.books.roster.node(NODE.peer_id).row
        assert (granted.addrs, granted.api_url) == (row.addrs, row.api_url)
        named = await both.ask(way)(replace(GRANT, anonymous=False, after=ticket.request_id))
        assert isinstance(named, Granted)


@BOTH
async def test_a_refusal_keeps_its_code(autojump_clock: MockClock, way: str) -> None:
    async with ways() as both:
        with pytest.raises(RemoteFailure) as caught:
            await both.ask(way)(replace(GRANT, model=ModelId("unknown")))
        assert caught.value.code == "unknown_model"
        with pytest.raises(RemoteFailure) as caught:
            await both.ask(way)(REPORT)
        assert caught.value.code == "not_authorized"


@BOTH
async def test_an_account_is_a_document(autojump_clock: MockClock, way: str) -> None:
    async with ways() as both:
        answer = await both.ask(way)(AskCredits())
        assert isinstance(answer, Document)
        account = json.loads(answer.document)
        assert (account["peer_id"], account["micro"]) == (NODE.peer_id, 0)
        assert await both.ask(way)(AskAudit()) == Accepted()


@BOTH
async def test_proofs_are_settled(autojump_clock: MockClock, way: str) -> None:
    async with ways() as both:
        work = Work([NODE, Identity(b"2" * 32)], issued_at=clock())
        proofs = [work.proof(0), work.proof(1)]
        outcomes = await both.settle(way)([*proofs, proofs[0]])
        became = [outcome.became for outcome in outcomes]
        assert became[0] in (Became.WAITING, Became.PAID)
        assert became[1] is Became.PAID
        assert outcomes[1].micro > 0
        again = await both.settle(way)(proofs)
        assert [each.became for each in again] == [Became.ALREADY_PAID] * 2


async def test_a_ticket_does_not_wait_for_proofs(autojump_clock: MockClock) -> None:
    async with ways() as both:
        await both.tracker.settle([Work([NODE], issued_at=clock()).proof(0)])
        async with trio.open_nursery() as nursery:
            # As while a megabyte of them is on its way.
            await both.tracker._proofs._turn.acquire()
            nursery.start_soon(both.tracker.settle, [])
            with trio.fail_after(1.0):
                assert isinstance(await both.tracker.ledger_call(GRANT), Granted)
            nursery.cancel_scope.cancel()


def test_what_has_no_route_is_not_said() -> None:
    with pytest.raises(OutOfTurn, match="no route takes Marks"):
        asked_over_http(Marks(()))


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (GRANT, {}),
        (GRANT, []),
        (GRANT, {"ticket": "x", "signature": "zz", "p2p_addrs": [], "api_url": None}),
        (GRANT, {"ticket": "", "signature": "", "p2p_addrs": ["nowhere"], "api_url": None}),
        (AskAudit(), {}),
        (AskAudit(), {"task": {"audit_id": "00"}}),
        (AskAudit(), {"task": 7}),
    ],
)
def test_an_answer_that_is_none_is_musivums_fault(message: Message, answer: Any) -> None:
    with pytest.raises(BadFrame):
        answered_over_http(message, answer)


def test_something_to_audit_is_read() -> None:
    order = {"order": "b3JkZXI=", "signature": "5" * 128}
    task = {
        "audit_id": "00ff",
        "proof": "cHJvb2Y=",
        "proof_signature": "6" * 128,
        "inputs": order,
        "inputs_addrs": ["/ip4/1.2.3.4/tcp/5"],
        "outputs": order,
        "outputs_addrs": [],
    }
    signed = SignedOrder(b"order", bytes([0x55]) * 64)
    assert answered_over_http(AskAudit(), {"task": task}) == AuditTask(
        audit_id=b"\0\xff",
        proof=b"proof",
        proof_signature=bytes([0x66]) * 64,
        inputs=signed,
        inputs_addrs=("/ip4/1.2.3.4/tcp/5",),
        outputs=signed,
        outputs_addrs=(),
    )
