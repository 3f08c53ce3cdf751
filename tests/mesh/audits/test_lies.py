"""Nodes whose proofs contradict their neighbours', in a mesh of real processes that audit them."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
import trio

from p2p.host import open_host
from p2p.peers import Host
from tests.mesh.audits.conftest import Say
from tests.mesh.audits.verdicts import Paid, audited, paid_beside, proofs_of
from tests.mesh.audits.watched import Node, Watched
from tests.mesh.restarts.program import LOOK_SECONDS
from tests.mesh.settlement.accounts import read_book
from tests.mesh.settlement.forked import until

pytestmark = [pytest.mark.mesh, pytest.mark.slow, pytest.mark.timeout(300)]

ASK_SECONDS = 40.0
# After the last of its requests: longer than proofs wait for a neighbour's that was refused.
PAID_SECONDS = 20.0
# Sessions that pass a liar.
SESSIONS = 4
REFUSED = "refused"


async def ask_through(watched: Watched, host: Host, suspect: Node) -> None:
    """Ask until so many sessions passed a suspect, and it has proofs of them."""
    passed = 0
    with trio.fail_after(ASK_SECONDS):
        while passed < SESSIONS:
            grant = await watched.grant(host)
            if suspect.peer_id in [stage.peer_id for stage in grant.ticket.chain]:
                await watched.ask(host, grant)
                passed += 1
        while proofs_of(suspect) < SESSIONS:  # noqa: ASYNC110 - no event tells of it
            await trio.sleep(LOOK_SECONDS)


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a suspect, and of all who worked with it."""

    seconds: float
    paid: Paid
    refused: int
    """Proofs of the suspect of which musivum told it that they are not paid."""


async def find_out(watched: Watched, suspect: Node) -> Found:
    """Have a suspect work beside others, until everybody else is paid in full."""
    async with open_host(watched.client, listen=[]) as host:
        await ask_through(watched, host, suspect)
        began = time.time()

        def is_settled() -> bool:
            paid = paid_beside(watched, suspect)
            return not paid.short and refused(suspect) == proofs_of(suspect)

        await until(is_settled, PAID_SECONDS)
    suspect.program.end()
    return Found(time.time() - began, paid_beside(watched, suspect), refused(suspect))


def refused(suspect: Node) -> int:
    """Proofs that a node knows not to be paid."""
    return sum(row.state == REFUSED for row in read_book(suspect.book))


def check(watched: Watched, lie: str, suspect: Node, found: Found, say: Say) -> None:
    """The suspect was paid nothing, everybody beside it all; nobody honest was blamed."""
    blamed = watched.told("unseen", *watched.peers)
    out = watched.told("benched", *watched.peers) + watched.told("slashed", *watched.peers)
    paid = found.paid
    say(
        f"audits {lie}",
        f"lie={lie} proofs={proofs_of(suspect)} refused={found.refused} micro={paid.micro} "
        f"beside={paid.beside} short={len(paid.short)} settled_s={found.seconds:.1f} "
        f"honest_blamed={len(blamed)} honest_out={len(out)}",
    )
    assert (paid.micro, found.refused) == (0, proofs_of(suspect))
    assert paid.beside == 2 * proofs_of(suspect) >= 2 * SESSIONS
    assert (paid.short, blamed, out) == ([], [], [])
    assert "Traceback" not in watched.errors()


async def test_who_says_that_other_rows_came_is_refused_and_those_beside_it_are_paid(
    watched: Watched, say: Say
) -> None:
    suspect = await watched.join("inputs")
    check(watched, "inputs", suspect, await find_out(watched, suspect), say)


async def test_who_sends_other_rows_than_it_commits_to_puts_nobody_in_the_wrong(
    watched: Watched, say: Say
) -> None:
    suspect = await watched.join("sent")
    check(watched, "sent", suspect, await find_out(watched, suspect), say)


async def test_who_says_that_it_sent_other_rows_than_it_shows_is_slashed(
    watched: Watched, say: Say
) -> None:
    suspect = await watched.join("outputs")
    found = await find_out(watched, suspect)
    check(watched, "outputs", suspect, found, say)
    await until(lambda: bool(watched.told("slashed", suspect.peer_id)), PAID_SECONDS)
    said = audited(watched, suspect)
    assert {each["verdict"] for each in said.opinions} == {"fraud"}
    assert said.different("auditor") > 1


async def test_who_shows_no_rows_for_what_it_says_it_sent_is_refused(
    watched: Watched, say: Say
) -> None:
    suspect = await watched.join("hidden")
    check(watched, "hidden", suspect, await find_out(watched, suspect), say)
