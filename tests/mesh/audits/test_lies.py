"""Nodes whose proofs contradict their neighbours', in a mesh of real processes that audit them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import trio

from p2p.host import open_host
from p2p.peers import Host
from tessella.core.audits import GUILTY_REJECTIONS
from tests.mesh.audits.afterwards import passes
from tests.mesh.audits.conftest import Say
from tests.mesh.audits.verdicts import Paid, paid_beside, proofs_of
from tests.mesh.audits.watched import Node, Watched
from tests.mesh.restarts.program import LOOK_SECONDS
from tests.mesh.settlement.accounts import read_book
from tests.mesh.settlement.forked import until

pytestmark = [pytest.mark.mesh, pytest.mark.slow, pytest.mark.timeout(300)]

ASK_SECONDS = 60.0
# After the last of its requests: longer than proofs wait for a neighbour's that was refused.
PAID_SECONDS = 20.0
# Sessions that pass a liar whom nobody can show to.
SESSIONS = 4
# Grants that are looked at when it is out: each honest node would be in a quarter of them, or more.
GRANTS = 40
REFUSED, SLASHED = "refused", "slashed"

IsOver = Callable[[], bool]


async def ask_through(watched: Watched, host: Host, suspect: Node, is_over: IsOver) -> int:
    """Ask, one request after another, what passes a suspect, until something is so."""
    passed = 0
    with trio.fail_after(ASK_SECONDS):
        while not is_over():
            if proofs_of(suspect) < passed:
                await trio.sleep(LOOK_SECONDS)
                continue
            grant = await watched.grant(host)
            if suspect.peer_id in [stage.peer_id for stage in grant.ticket.chain]:
                await watched.ask(host, grant)
                passed += 1
    return passed


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a suspect, and of all who worked with it."""

    passed: int
    """Sessions."""
    paid: Paid
    refused: int
    """Proofs of the suspect of which musivum told it that they are not paid."""
    named: int
    """Grants that name it, of GRANTS made after that."""


async def find_out(watched: Watched, suspect: Node, is_over: IsOver) -> Found:
    """Have a suspect work beside others until something is so, and everybody else is paid."""
    async with open_host(watched.client, listen=[]) as host:
        passed = await ask_through(watched, host, suspect, is_over)
        assert await until(lambda: is_settled(watched, suspect), PAID_SECONDS)
        grants = [await watched.grant(host) for _ in range(GRANTS)]
    suspect.program.end()
    named = sum(passes(grant, suspect) for grant in grants)
    return Found(passed, paid_beside(watched, suspect), refused(suspect), named)


def is_settled(watched: Watched, suspect: Node) -> bool:
    """Whether everybody beside a suspect is paid in full; one that is out hears no more."""
    is_out = bool(watched.told(SLASHED, suspect.peer_id))
    is_told = is_out or refused(suspect) == proofs_of(suspect)
    return not paid_beside(watched, suspect).short and is_told


def refused(suspect: Node) -> int:
    """Proofs that a node knows not to be paid."""
    return sum(row.state == REFUSED for row in read_book(suspect.book))


def check(watched: Watched, lie: str, suspect: Node, found: Found, say: Say) -> None:
    """The suspect was paid nothing, everybody beside it all; nobody honest was blamed."""
    blamed = watched.told("unseen", *watched.peers)
    out = watched.told("benched", *watched.peers) + watched.told(SLASHED, *watched.peers)
    paid, slashed = found.paid, watched.told(SLASHED, suspect.peer_id)
    say(
        f"audits {lie}",
        f"lie={lie} sessions={found.passed} micro={paid.micro} refused={found.refused} "
        f"beside={paid.beside} short={len(paid.short)} slashed={len(slashed)} "
        f"named_after={found.named}/{GRANTS} honest_blamed={len(blamed)} honest_out={len(out)}",
    )
    assert (paid.micro, paid.beside) == (0, 2 * found.passed)
    assert (paid.short, blamed, out) == ([], [], [])
    assert (found.named == 0) is bool(slashed)
    assert "Traceback" not in watched.errors()


async def test_who_says_that_other_rows_came_is_refused_and_those_beside_it_are_paid(
    watched: Watched, say: Say
) -> None:
    """Its proofs prove nothing, so that nobody has to look at them."""
    suspect = await watched.join("inputs")
    found = await find_out(watched, suspect, lambda: proofs_of(suspect) >= SESSIONS)
    check(watched, "inputs", suspect, found, say)
    assert found.refused == found.passed


@pytest.mark.parametrize("lie", ["sent", "outputs", "hidden"])
async def test_who_commits_to_other_rows_than_it_sends_is_slashed_when_two_have_shown_it(
    lie: str, watched: Watched, say: Say
) -> None:
    suspect = await watched.join(lie)
    found = await find_out(watched, suspect, lambda: bool(watched.told(SLASHED, suspect.peer_id)))
    check(watched, lie, suspect, found, say)
    (slashed,) = watched.told(SLASHED, suspect.peer_id)
    assert "vouched for" in slashed["reason"]
    assert found.passed >= GUILTY_REJECTIONS
