"""Nodes that cheat, and one that is a trap, in a mesh of real processes whose nodes audit them."""

from __future__ import annotations

import time

import pytest
import trio

from p2p.host import open_host
from p2p.peers import Host
from tessella.core.audits import GUILTY_AUDITORS, GUILTY_REQUESTS
from tests.mesh.audits.afterwards import Way, ask_afterwards, passes
from tests.mesh.audits.conftest import Say
from tests.mesh.audits.verdicts import audited, fines_of, proofs_of
from tests.mesh.audits.watched import WATERMARK, Node, Watched
from tests.mesh.audits.worker_program import COPY
from tests.mesh.restarts.program import BEAT

pytestmark = [pytest.mark.mesh, pytest.mark.slow, pytest.mark.timeout(300)]

CAUGHT_SECONDS = 40.0
# Grants of a mesh with a canary in it: an ordinary node would be in a quarter of their chains.
GRANTS = 60
HONEST_AUDITS = 30
HONEST_SECONDS = 30.0


async def ask_until_slashed(watched: Watched, host: Host, suspect: Node) -> float:
    """Ask what anybody asks; when the suspect was slashed, in seconds since 1970."""
    with trio.move_on_after(CAUGHT_SECONDS):
        while not (slashed := watched.told("slashed", suspect.peer_id)):
            await watched.ask(host, await watched.grant(host))
        return float(slashed[0]["at"])
    said = audited(watched, suspect)
    raise AssertionError(
        f"not caught after {CAUGHT_SECONDS:g} s: {proofs_of(suspect)} proofs, {said.opinions}, "
        f"{watched.errors(suspect)}"
    )


async def catch(watched: Watched, name: str, suspect: Node, say: Say) -> None:
    """Have a suspect caught, and nothing pass it from there on."""
    began = time.time()
    async with open_host(watched.client, listen=[]) as host:
        way = Way(suspect, await ask_until_slashed(watched, host, suspect))
        said, proofs = audited(watched, suspect), proofs_of(suspect)
        await way.follow(watched, host)
        passed = await ask_afterwards(watched, host, suspect)
    suspect.program.end()
    fines = fines_of(watched.ledger, suspect.peer_id)
    say(
        f"audits {name}",
        f"cheat={name} proofs={proofs} {said.words} until_caught={said.until_caught} "
        f"auditors={said.different('auditor')} requests={said.different('request')} "
        f"slashed={len(fines)} fine_micro={sum(fines)} slashed_s={way.since - began:.1f} "
        f"rerouted_s={way.last_seen:.2f} first_look_s={way.first_look:.2f} "
        f"grants_after={way.grants} sessions_after={passed}",
    )
    assert len(fines) == 1
    assert sum(fines) > 0
    assert way.last_seen <= BEAT
    assert way.grants > 0
    assert passed == 0


@pytest.mark.parametrize("cheat", ["echo", "scale", "skip", "stale", "lower"])
async def test_who_does_not_compute_what_it_is_paid_for_is_caught_and_nothing_passes_it(
    cheat: str, watched: Watched, say: Say
) -> None:
    args = ("--dtype", "bf16") if cheat == "lower" else ()
    suspect = await watched.join(cheat, *args)
    await catch(watched, cheat, suspect, say)
    said = audited(watched, suspect)
    if cheat != "stale":  # which has nothing to say again in its first session
        assert said.rejected == said.opinions
    assert said.different("auditor") >= GUILTY_AUDITORS
    assert said.different("request") >= GUILTY_REQUESTS


async def test_who_sells_the_work_of_another_is_given_away_by_its_mark(
    watched: Watched, say: Say
) -> None:
    canary = watched.honest[WATERMARK]
    suspect = await watched.join(f"{COPY}:{canary.address.full()[0]}")
    await catch(watched, COPY, suspect, say)
    (slashed,) = watched.told("slashed", suspect.peer_id)
    assert slashed["reason"] == f"copied from {canary.peer_id}"
    assert audited(watched, canary).rejected == []


async def test_an_operators_canary_is_listed_as_one_and_nothing_passes_it(
    watched: Watched, say: Say
) -> None:
    canary = await watched.join("honest", canary_mode="echo")
    listed = (await watched.planned.peers())[canary.peer_id]["canary"]
    async with open_host(watched.client, listen=[]) as host:
        grants = [await watched.grant(host) for _ in range(GRANTS)]
        passed = await ask_afterwards(watched, host, canary)
    through = sum(passes(grant, canary) for grant in grants)
    say(
        "audits canary",
        f"canary=echo listed={int(listed)} grants={GRANTS} through={through} sessions={passed}",
    )
    assert "THIS NODE IS A CANARY" in canary.program.errors
    canary.program.end()
    assert listed is True
    assert (through, passed) == (0, 0)


async def test_nobody_honest_is_rejected(watched: Watched, say: Say) -> None:
    async with open_host(watched.client, listen=[]) as host:
        with trio.fail_after(HONEST_SECONDS):
            while len(audited(watched, *watched.honest).opinions) < HONEST_AUDITS:
                await watched.ask(host, await watched.grant(host))
    said = audited(watched, *watched.honest)
    each = ",".join(str(len(audited(watched, node).opinions)) for node in watched.honest)
    say(
        "audits honest",
        f"honest {said.words} nodes={len(watched.honest)} each={each} answers={watched.answers}",
    )
    assert said.rejected == []
    assert {node.peer_id for node in watched.honest} <= await watched.serving()
