"""Nodes whose proofs contradict their neighbours', in a mesh of real processes that audit them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import trio

from p2p.host import open_host
from p2p.peers import Host
from tessella.client import Grant
from tessella.core.ids import PeerId
from tests.mesh.audits.afterwards import ask_afterwards, passes
from tests.mesh.audits.conftest import Say
from tests.mesh.audits.musivum_program import NOTHING
from tests.mesh.audits.verdicts import Paid, audited, paid_beside, proofs_of, ruled
from tests.mesh.audits.watched import RANGES, Node, Watched
from tests.mesh.restarts.program import LOOK_SECONDS
from tests.mesh.settlement.accounts import read_book
from tests.mesh.settlement.forked import until

pytestmark = [pytest.mark.mesh, pytest.mark.slow, pytest.mark.timeout(300)]

FOUND_SECONDS = 40.0
# After the last of its requests.
PAID_SECONDS = 15.0
# Grants that are looked at when it is out: each honest node would be in a quarter of them, or more.
GRANTS = 40
ENTRY, TAIL = "0:2", "4:6"
SLASHED = "slashed"

IsOver = Callable[[], bool]


async def ask_until(watched: Watched, host: Host, suspect: Node, is_over: IsOver) -> float:
    """Ask what passes a suspect, one dispute after another, until something is so.

    Returns how many seconds that took.
    """
    began = time.time()
    with trio.move_on_after(FOUND_SECONDS):
        while not is_over():
            if proofs_of(suspect) > len(ruled(watched, suspect)):
                await trio.sleep(LOOK_SECONDS)
                continue
            grant = await watched.grant(host)
            if suspect.peer_id in [stage.peer_id for stage in grant.ticket.chain]:
                await watched.ask(host, grant)
        return time.time() - began
    raise AssertionError(
        f"not over after {FOUND_SECONDS:g} s: {proofs_of(suspect)} proofs, "
        f"{ruled(watched, suspect)}, {watched.errors(suspect)}"
    )


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a suspect, and of all others."""

    seconds: float
    paid: Paid
    grants: list[Grant]
    """Made after that."""
    passed: int
    """Sessions that passed it after that."""


async def find_out(watched: Watched, suspect: Node, is_over: IsOver, short: int = 0) -> Found:
    """Have a suspect found out, all others paid but for so many, and see where sessions go."""
    async with open_host(watched.client, listen=[]) as host:
        seconds = await ask_until(watched, host, suspect, is_over)
        await until(lambda: len(paid_beside(watched, suspect).short) == short, PAID_SECONDS)
        paid = paid_beside(watched, suspect)
        grants = [await watched.grant(host) for _ in range(GRANTS)]
        passed = await ask_afterwards(watched, host, suspect)
    suspect.program.end()
    return Found(seconds, paid, grants, passed)


def check(watched: Watched, lie: str, suspect: Node, found: Found, say: Say) -> None:
    """The suspect was not paid and is out; nobody honest lost its place."""
    named = sum(passes(grant, suspect) for grant in found.grants)
    blamed = watched.told("unseen", *watched.peers)
    out = watched.told("benched", *watched.peers) + watched.told(SLASHED, *watched.peers)
    paid = found.paid
    say(
        f"audits {lie}",
        f"lie={lie} disputes={len(ruled(watched, suspect))} out_s={found.seconds:.1f} "
        f"proofs={proofs_of(suspect)} micro={paid.micro} beside={paid.beside} "
        f"short={len(paid.short)} grants_after={GRANTS} "
        f"named={named} sessions_after={found.passed} honest_blamed={len(blamed)} "
        f"honest_out={len(out)}",
    )
    assert (paid.micro, paid.beside) == (0, 2 * proofs_of(suspect))
    assert (named, found.passed, blamed, out) == (0, 0, [], [])
    assert all(any(passes(grant, node) for grant in found.grants) for node in watched.honest)
    assert "Traceback" not in watched.errors()


def peers_of(watched: Watched, layers: str) -> set[PeerId]:
    """The honest nodes of a range."""
    pairs = zip(watched.honest, RANGES, strict=True)
    return {node.peer_id for node, each in pairs if each == layers}


def disputed_by(watched: Watched, suspect: Node) -> set[PeerId]:
    """The tails behind it in what was disputed, and looked at."""
    requests = {each["request"] for each in ruled(watched, suspect)}
    return {
        node.peer_id
        for node in watched.honest
        if node.peer_id in peers_of(watched, TAIL)
        and any(row.request_id.hex() in requests for row in read_book(node.book))
    }


@pytest.mark.parametrize("number", ["first", "second"])
async def test_who_says_that_other_rows_came_is_not_paid_and_soon_has_nobody_before_it(
    number: str, watched: Watched, say: Say
) -> None:
    """The second one contradicts those whom the first one did: they are blamed for neither."""
    suspect, entries = await watched.join("inputs"), peers_of(watched, ENTRY)

    def is_over() -> bool:
        return {each["worker"] for each in ruled(watched, suspect)} == entries

    found = await find_out(watched, suspect, is_over)
    check(watched, f"inputs-{number}", suspect, found, say)
    assert len(ruled(watched, suspect)) == len(entries), "one of each"
    assert {each["ruling"] for each in ruled(watched, suspect)} == {"right"}


async def test_who_says_that_it_sent_other_rows_than_it_shows_is_slashed(
    watched: Watched, say: Say
) -> None:
    suspect = await watched.join("outputs")
    found = await find_out(watched, suspect, lambda: bool(watched.told(SLASHED, suspect.peer_id)))
    check(watched, "outputs", suspect, found, say)
    said = audited(watched, suspect)
    assert {each["verdict"] for each in said.opinions} == {"fraud"}
    assert said.different("auditor") > 1


async def test_who_shows_no_rows_for_what_it_says_it_sent_soon_has_nobody_behind_it(
    watched: Watched, say: Say
) -> None:
    """Nobody can tell who lies: it and who contradicts it wait for half."""
    suspect, tails = await watched.join("hidden"), peers_of(watched, TAIL)
    found = await find_out(
        watched, suspect, lambda: disputed_by(watched, suspect) == tails, short=len(tails)
    )
    check(watched, "hidden", suspect, found, say)
    assert {row.worker for row in found.paid.short} == tails
    assert [each["ruling"] for each in ruled(watched, suspect)] == [NOTHING] * len(tails)
