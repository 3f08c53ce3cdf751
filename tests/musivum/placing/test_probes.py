"""Dial-backs and probes: no peer has more than its place, and an error of ours is no verdict."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_address

import httpx
import pytest
import trio
from trio.testing import MockClock

from musivum.config import MusivumConfig
from musivum.nodes.registration import read_registration
from musivum.nodes.roster import Roster
from musivum.placing import probes
from musivum.placing.listing import Shown
from musivum.placing.node_calls import CHALLENGE_SECONDS, Http
from musivum.placing.probes import PROOF_TIMEOUT, PROOFS, Probes
from musivum.testing import HOUSE, a_registration
from p2p.peers import Proof
from p2p.testing import MemoryHost
from tessella.core.addresses import PeerAddress
from tessella.core.challenge import read_challenge
from tessella.core.errors import LocalError, PeerSilent, TessellaError, TooManyRequests
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.signed_request import sign_answer
from tessella.web.client import TOTAL_SECONDS, open_client

SLOW, HONEST, ACCUSED = PeerId("slow"), PeerId("honest"), PeerId("accused")
ADDRS = ("/ip4/10.0.0.9/tcp/4001",)
OURS, NODE = Identity(b"m" * 32), Identity(b"n" * 32)
URL = "http://10.0.0.7:8080"
WISH = read_registration(a_registration(), HOUSE)


class Answering(MemoryHost):
    """A host to which one peer never answers, and all others prove what they say."""

    def __init__(self, error: TessellaError | None = None) -> None:
        self.error = error
        self.address = PeerAddress(OURS.peer_id, ())
        self.dialled: list[PeerId] = []

    async def prove(self, peer: PeerAddress, *, timeout: float) -> Proof:
        self.dialled.append(peer.peer_id)
        if peer.peer_id == SLOW:
            await trio.sleep(timeout)
            return Proof((), ("did not answer in time",))
        return Proof(peer.addrs, ())

    async def connect(self, peer: PeerAddress, *, timeout: float) -> None:
        if self.error is not None:
            raise self.error


class Site:
    """What answers at every URL: the node of a key, or nobody for ever."""

    def __init__(self, identity: Identity | None = NODE) -> None:
        self.identity = identity
        self.called: list[str] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.called.append(str(request.url))
        if self.identity is None:
            await trio.sleep_forever()
        asked = read_challenge(request.headers)
        assert asked is not None
        headers = sign_answer(self.identity or NODE, asked.text(b"{}"))
        return httpx.Response(200, content=b"{}", headers=headers)


@asynccontextmanager
async def looking(
    host: MemoryHost | None = None, site: Site | None = None
) -> AsyncIterator[tuple[Probes, Roster]]:
    roster = Roster(MusivumConfig(min_vram_mb=0))
    async with open_client(httpx.MockTransport(site or Site())) as client:
        yield Probes(host or Answering(), roster, Http(client, allow_private=True)), roster


async def proven(looked: Probes, peer_id: PeerId = HONEST) -> tuple[str, ...]:
    return (await looked.prove(peer_id, ADDRS, "")).addrs


async def test_who_never_answers_keeps_nobody_waiting_however_often_it_asks(
    autojump_clock: MockClock,
) -> None:
    host = Answering()
    async with looking(host) as (looked, _), trio.open_nursery() as nursery:
        for _ in range(2 * PROOFS):
            nursery.start_soon(proven, looked, SLOW)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        assert await proven(looked) == ADDRS
        assert trio.current_time() == began
        assert host.dialled == [SLOW, HONEST]
        nursery.cancel_scope.cancel()


async def test_a_site_that_never_answers_keeps_nobody_waiting_either(
    autojump_clock: MockClock,
) -> None:
    site = Site(None)
    async with looking(site=site) as (looked, _), trio.open_nursery() as nursery:
        for _ in range(2 * PROOFS):
            nursery.start_soon(looked.prove, NODE.peer_id, (), URL)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        assert await proven(looked) == ADDRS
        assert trio.current_time() == began
        assert len(site.called) == 1
        nursery.cancel_scope.cancel()


async def test_as_many_sites_are_called_at_once_as_nodes_are_dialled(
    autojump_clock: MockClock,
) -> None:
    site = Site(None)
    async with looking(site=site) as (looked, _), trio.open_nursery() as nursery:
        for number in range(PROOFS + 8):
            nursery.start_soon(looked.prove, PeerId(str(number)), (), URL)
        await trio.testing.wait_all_tasks_blocked()
        assert len(site.called) == PROOFS
        nursery.cancel_scope.cancel()


async def test_a_url_is_called_only_where_the_addresses_leave_it_open(
    autojump_clock: MockClock,
) -> None:
    here = ip_address("10.0.0.7")
    site = Site()
    async with looking(site=site) as (looked, _):
        shown = await looked.prove(NODE.peer_id, ADDRS, "http://10.0.0.9:8080")
        assert (shown, site.called) == (Shown(addrs=ADDRS), [])
        shown = await looked.prove(NODE.peer_id, ADDRS, URL)
        assert (shown, site.called) == (Shown(addrs=ADDRS, url=True), [f"{URL}/p2p_id"])
        assert await looked.prove(NODE.peer_id, (), URL) == Shown(url=True, ips=(here,))


@pytest.mark.parametrize("dial_back", [True, False])
async def test_without_a_dial_back_addresses_are_believed_and_a_url_is_not(
    dial_back: bool, autojump_clock: MockClock
) -> None:
    host, site = Answering(), Site()
    async with looking(host, site) as (looked, _):
        shown = await looked.prove(HONEST, ADDRS, URL, dial_back=dial_back)
        assert host.dialled == [HONEST] * dial_back
        assert (shown.addrs, shown.url, len(site.called)) == (ADDRS, False, 1)
        assert shown.url_failure == f"{URL}/p2p_id answered without a signature of that key"


async def test_a_node_hears_of_its_registration_before_it_gives_up(
    autojump_clock: MockClock,
) -> None:
    async with looking(site=Site(None)) as (looked, _):
        began = trio.current_time()
        shown = await looked.prove(SLOW, ADDRS, URL)
        took = trio.current_time() - began
    assert took == pytest.approx(PROOF_TIMEOUT + CHALLENGE_SECONDS)
    assert took < TOTAL_SECONDS
    assert (shown.addrs, shown.failures) == ((), ("did not answer in time",))
    assert shown.url_failure == f"{URL}/p2p_id did not answer in time"


async def test_too_many_wait_for_no_place_at_all(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(probes, "MAX_PROOFS_WAITING", 1)
    async with looking() as (looked, _):
        async with trio.open_nursery() as nursery:
            for _ in range(PROOFS + 1):
                nursery.start_soon(proven, looked, SLOW)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(TooManyRequests, match="wait to be dialled back"):
                await proven(looked)
            nursery.cancel_scope.cancel()
        assert await proven(looked) == ADDRS


@pytest.mark.parametrize(
    ("error", "lost"), [(PeerSilent("no"), [ACCUSED]), (LocalError("a bug below"), [])]
)
async def test_only_who_does_not_answer_is_lost(
    error: TessellaError, lost: list[PeerId], autojump_clock: MockClock
) -> None:
    async with looking(Answering(error)) as (looked, roster):
        roster.join(ACCUSED, WISH, 0.0)
        assert await found_lost(looked, ACCUSED) == lost * 2


@pytest.mark.parametrize(
    ("site", "lost"),
    [(Site(), False), (Site(OURS), True), (Site(None), True)],
    ids=["its key", "another key", "silence"],
)
async def test_a_node_that_only_its_url_leads_to_is_looked_at_there(
    site: Site, lost: bool, autojump_clock: MockClock
) -> None:
    site.called.clear()
    async with looking(Answering(PeerSilent("nobody dials it")), site) as (looked, roster):
        roster.join(NODE.peer_id, replace(WISH, addrs=(), api_url=URL), 0.0)
        assert await found_lost(looked, NODE.peer_id) == [NODE.peer_id] * (2 * lost)
    assert len(site.called) == 2


async def found_lost(looked: Probes, accused: PeerId) -> list[PeerId]:
    """Who was lost of two accusations, one after the other."""
    found: list[PeerId] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(looked.run, lambda _, accused: found.append(accused))
        for now in (0.0, 1.0):
            assert looked.report(HONEST, accused, now)
            await trio.sleep(CHALLENGE_SECONDS + 1)
        nursery.cancel_scope.cancel()
    return found
