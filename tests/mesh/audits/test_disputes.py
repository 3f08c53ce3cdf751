"""Nodes whose proofs contradict their neighbours', in a mesh of real processes that audit them."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
import trio

from musivum.audits.standing import KEPT_SHOWN
from p2p.host import open_host
from p2p.peers import Host
from tessella.client import Grant
from tests.mesh.audits.afterwards import ask_afterwards, passes
from tests.mesh.audits.conftest import Say
from tests.mesh.audits.verdicts import Paid, audited, paid_beside, proofs_of, ruled
from tests.mesh.audits.watched import Node, Watched
from tests.mesh.restarts.program import LOOK_SECONDS
from tests.mesh.settlement.forked import until

pytestmark = [pytest.mark.mesh, pytest.mark.slow, pytest.mark.timeout(300)]

FOUND_SECONDS = 40.0
# After the last of its requests.
PAID_SECONDS = 15.0
# More than half of the last audits are against who is benched. Of each dispute over rows that it
# says came that is one; of those it hides, the two of whoever looks, and those of its neighbour's.
DISPUTES, HIDDEN_DISPUTES = KEPT_SHOWN // 2 + 1, 3
# Grants that are looked at when it is out: each honest node would be in a quarter of them, or more.
GRANTS = 40
BENCHED, SLASHED = "benched", "slashed"


async def ask_until(
    watched: Watched, host: Host, suspect: Node, event: str, *, needed: int
) -> float:
    """Ask so often what passes a suspect, and on, one by one, until musivum told that of it.

    Returns when that was, in seconds since 1970.
    """
    with trio.move_on_after(FOUND_SECONDS):
        while not (told := watched.told(event, suspect.peer_id)):
            decided = len(ruled(watched, suspect))
            if proofs_of(suspect) >= max(needed, decided + 1):
                await trio.sleep(LOOK_SECONDS)
                continue
            grant = await watched.grant(host)
            if suspect.peer_id in [stage.peer_id for stage in grant.ticket.chain]:
                await watched.ask(host, grant)
        return float(told[0]["at"])
    raise AssertionError(
        f"not {event} after {FOUND_SECONDS:g} s: {proofs_of(suspect)} proofs, "
        f"{ruled(watched, suspect)}, {watched.errors(suspect)}"
    )


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a suspect, and of all others."""

    disputes: int
    """Of its requests, that were decided until it was found out."""
    seconds: float
    paid: Paid
    paid_seconds: float
    """From there on, until everybody beside it was paid."""
    grants: list[Grant]
    """Made after that."""
    passed: int
    """Sessions that passed it after that."""


async def find_out(watched: Watched, suspect: Node, event: str, *, needed: int = DISPUTES) -> Found:
    """Have a suspect found out, all others paid, and see where sessions go from there on."""
    began = time.time()
    async with open_host(watched.client, listen=[]) as host:
        at = await ask_until(watched, host, suspect, event, needed=needed)
        disputes = len([each for each in ruled(watched, suspect) if each["at"] <= at])
        await until(lambda: not paid_beside(watched, suspect).short, PAID_SECONDS)
        paid, took = paid_beside(watched, suspect), time.time() - at
        grants = [await watched.grant(host) for _ in range(GRANTS)]
        passed = await ask_afterwards(watched, host, suspect)
    suspect.program.end()
    return Found(disputes, at - began, paid, took, grants, passed)


def check(watched: Watched, lie: str, suspect: Node, found: Found, say: Say) -> None:
    """The suspect was not paid and is out; nobody honest lost anything."""
    named = sum(passes(grant, suspect) for grant in found.grants)
    blamed = watched.told("unseen", *watched.peers)
    out = watched.told(BENCHED, *watched.peers) + watched.told(SLASHED, *watched.peers)
    paid = found.paid
    say(
        f"audits {lie}",
        f"lie={lie} disputes={found.disputes} out_s={found.seconds:.1f} "
        f"proofs={proofs_of(suspect)} micro={paid.micro} beside={paid.beside} "
        f"short={len(paid.short)} paid_s={found.paid_seconds:.1f} grants_after={GRANTS} "
        f"named={named} sessions_after={found.passed} honest_blamed={len(blamed)} "
        f"honest_out={len(out)}",
    )
    assert (paid.micro, paid.beside) == (0, 2 * proofs_of(suspect))
    assert paid.short == [], watched.errors()
    assert (named, found.passed, blamed, out) == (0, 0, [], [])
    assert all(any(passes(grant, node) for grant in found.grants) for node in watched.honest)
    assert "Traceback" not in watched.errors()


@pytest.mark.parametrize("number", ["first", "second"])
async def test_who_says_that_other_rows_came_is_not_paid_and_soon_gets_no_tickets(
    number: str, watched: Watched, say: Say
) -> None:
    """The second one contradicts those whom the first one did: they are blamed for neither."""
    suspect = await watched.join("inputs")
    found = await find_out(watched, suspect, BENCHED)
    check(watched, f"inputs-{number}", suspect, found, say)
    assert found.disputes == DISPUTES
    assert {each["ruling"] for each in ruled(watched, suspect)} == {"right"}


async def test_who_says_that_it_sent_other_rows_than_it_shows_is_slashed(
    watched: Watched, say: Say
) -> None:
    suspect = await watched.join("outputs")
    found = await find_out(watched, suspect, SLASHED, needed=1)
    check(watched, "outputs", suspect, found, say)
    said = audited(watched, suspect)
    assert {each["verdict"] for each in said.opinions} == {"fraud"}
    assert said.different("auditor") > 1


async def test_who_shows_no_rows_for_what_it_says_it_sent_is_not_paid_and_soon_gets_no_tickets(
    watched: Watched, say: Say
) -> None:
    suspect = await watched.join("hidden")
    found = await find_out(watched, suspect, BENCHED, needed=HIDDEN_DISPUTES)
    check(watched, "hidden", suspect, found, say)
    assert {each["ruling"] for each in ruled(watched, suspect)} == {"wrong"}
