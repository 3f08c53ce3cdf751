"""Two whole musivums that list each other, and what others get of them."""

from __future__ import annotations

import pytest
import trio

from musivum.config import MusivumConfig
from musivum.federation.partners import Partner
from musivum.federation.pull import State
from musivum.federation.room import issuers
from musivum.testing import clock
from musivum.testing_http import answering
from p2p.testing import MemoryNetwork
from tessella.core.errors import BadConfig
from tessella.core.ledger import MINT
from tessella.core.settlement import Became, Outcome
from tessella.core.signed_request import SIGNATURE
from tests.core.work import identity
from tests.musivum.federation.light import WORKER, A, B, a_proof
from tests.musivum.federation.whole import AS_ADMIN, SNAPSHOT, Whole, signed, two
from tests.musivum.ledger.keeping import PAY


async def code_of(whole: Whole, path: str, **headers: str) -> tuple[int, str]:
    """How a question is refused."""
    answer = await whole.ask(path, **headers)
    return answer.status_code, answer.json()["error"]["code"]


async def test_what_was_paid_at_one_is_already_paid_at_the_other() -> None:
    proof = a_proof(1, at=clock())
    async with two() as (a, b):
        assert await a.settle(proof) == [Outcome(Became.PAID, PAY)]
        await b.follower(A).pull()
        assert await b.settle(proof) == [Outcome(Became.ALREADY_PAID, PAY)]
        assert await b.ledger.balance(WORKER.peer_id) == PAY
        assert await b.ledger.balance(MINT) == -PAY
        (partner,) = await b.partners()
        size = await a.ledger.size()
        assert (partner["state"], partner["size"], partner["behind"]) == ("following", size, 0)
        assert (partner["peer_id"], partner["error"]) == (A.peer_id, "")
        (foreign,) = await b.settle(a_proof(2, identity(77), at=clock()))
        assert foreign.code == "foreign_ticket"


async def test_a_page_is_for_partners_and_the_operator() -> None:
    proof = a_proof(1, at=clock())
    async with two() as (a, _):
        await a.settle(proof)
        assert await code_of(a, SNAPSHOT) == (401, "admin_only")
        asked = f"{SNAPSHOT}?since=0&limit=1"
        whole = (await a.ask(asked, **AS_ADMIN)).raise_for_status()
        assert SIGNATURE not in whole.headers
        headers = signed(B, A.peer_id, since=0, limit=1)
        page = (await a.ask(asked, **headers)).raise_for_status()
        assert page.json() == whole.json()
        assert SIGNATURE in page.headers
        assert await code_of(a, asked, **headers) == (401, "call_replayed")
        stranger = signed(identity(5), A.peer_id, since=0, limit=1)
        assert await code_of(a, asked, **stranger) == (403, "not_authorized")
        for others in (signed(B, B.peer_id, since=0, limit=1), signed(B, A.peer_id, since=1)):
            assert await code_of(a, asked, **others) == (401, "bad_signature")


async def test_who_has_more_than_there_is_gets_the_head() -> None:
    async with two() as (a, _):
        assert (await a.ask(f"{SNAPSHOT}?since=9", **AS_ADMIN)).status_code == 404
        page = await a.ask(f"{SNAPSHOT}?since=9", **signed(B, A.peer_id, since=9))
        found = page.raise_for_status().json()
        size = await a.ledger.size()
        assert (found["since"], found["entries"], found["head"]["size"]) == (9, [], size)


async def test_a_private_mesh_lets_its_partners_in() -> None:
    proof = a_proof(1, at=clock())
    async with two(allow=()) as (a, b):
        await a.settle(proof)
        await b.follower(A).pull()
        assert await b.ledger.balance(WORKER.peer_id) == PAY


async def test_a_partner_that_calls_is_asked_again_at_once() -> None:
    proof = a_proof(1, at=clock())
    async with two() as (a, b):
        # A began alone, and would ask B again an hour later.
        assert a.follower(B).state is State.AWAY
        await b.settle(proof)
        await b.follower(A).pull()
        with trio.fail_after(10):
            while await a.ledger.balance(WORKER.peer_id) != PAY:  # noqa: ASYNC110 - of a store
                await trio.sleep(0.01)
        assert a.follower(B).state is State.FOLLOWING


async def test_only_the_operator_forgets() -> None:
    proof = a_proof(1, at=clock())
    async with two() as (a, b):
        await a.settle(proof)
        await b.follower(A).pull()
        body, size = {"peer_id": A.peer_id}, await a.ledger.size()
        refused = await b.door.client.post("/federation/forget", json=body)
        assert refused.json()["error"]["code"] == "admin_only"
        done = await b.door.client.post("/federation/forget", json=body, headers=AS_ADMIN)
        assert done.raise_for_status().json() == {"peer_id": A.peer_id, "entries": size}
        assert await b.ledger.balance(WORKER.peer_id) == 0
        again = await b.door.client.post(
            "/federation/forget", json={"peer_id": "nobody"}, headers=AS_ADMIN
        )
        assert (again.status_code, again.json()["error"]["code"]) == (400, "bad_request")


async def test_nobody_is_its_own_partner() -> None:
    config = MusivumConfig(federation=(Partner(A.peer_id, "http://a.test"),))
    with pytest.raises(BadConfig, match="this musivum itself"):
        async with answering(MemoryNetwork(), A.seed, config):
            pass


def test_tickets_of_partners_are_paid() -> None:
    assert issuers(A, [Partner(B.peer_id, "http://b.test")]) == {A.peer_id, B.peer_id}
