"""Two musivums in processes of their own that list each other, and one of them is killed often."""

from __future__ import annotations

import signal
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import trio

from musivum.ledger import HEAD_SECONDS, Ledger
from musivum.store import open_store
from tessella.core.identity import Identity
from tessella.core.ledger import Entry, Walk, open_entry, open_head
from tessella.core.proofs import SignedProof
from tessella.keys import load_or_create_key
from tessella.web.client import CallLimits, get_json, open_client, post_json
from tests.core.work import Work, identity
from tests.mesh.federation.dying import POINTS, trap
from tests.mesh.restarts.musivum_program import HOST, Musivum, a_musivum

pytestmark = [pytest.mark.mesh, pytest.mark.slow, pytest.mark.timeout(200)]

# Settled at the first one alone, at the second one alone, at both before they heard of each other.
FIRST, SECOND, BOTH = 300, 20, 30
WORKER, CLIENT = identity(1), identity(2)
SYNC_SECONDS = 40.0
LARGE = CallLimits(answer=1 << 20, seconds=30.0)


def a_proof(number: int, issuer: Identity) -> SignedProof:
    """A proof of one stage, for a client that earns as well; each number is another request."""
    workers = (WORKER, CLIENT)
    requester = workers[1 - number % 2].peer_id if number % 3 else "anonymous"
    work = Work(
        [workers[number % 2]],
        requester,
        issuer=issuer,
        request_id=number.to_bytes(16, "big"),
        issued_at=time.time(),
    )
    return work.proof(0)


def url_of(musivum: Musivum) -> str:
    """Where it answers HTTP."""
    return f"http://{HOST}:{musivum.ports[1]}"


def two(directory: Path) -> tuple[Musivum, Musivum]:
    """Two that list each other, and were not started yet."""
    a, b = (
        replace(a_musivum(directory / name, ""), module="tests.mesh.federation.dying")
        for name in ("a", "b")
    )
    for one, other in ((a, b), (b, a)):
        listed = f'federation = ["{other.address.peer_id}@{url_of(other)}"]\n'
        # Nobody caps what is minted here: what is paid is to be known beforehand.
        rest = "federation_pull_seconds = 0.5\nmint_daily_cap = 1000000\n"
        (one.home / "musivum.toml").write_text(listed + rest)
    return a, b


async def settle(musivum: Musivum, proofs: Sequence[SignedProof]) -> Counter[str]:
    """What became of these, in words."""
    found: Counter[str] = Counter()
    async with open_client() as client:
        for start in range(0, len(proofs), 256):
            bodies = [
                {"payload": b64encode(each.payload).decode(), "signature": each.signature.hex()}
                for each in proofs[start : start + 256]
            ]
            url = f"{url_of(musivum)}/api/v1/work_done_batch"
            answer: Any = await post_json(client, url, {"proofs": bodies}, limits=LARGE)
            found.update(each["became"] for each in answer["outcomes"])
    return found


async def partner_of(musivum: Musivum) -> dict[str, Any]:
    """What it says of the other."""
    async with open_client() as client:
        answer: Any = await get_json(client, f"{url_of(musivum)}/federation/status")
    (found,) = answer["partners"]
    return dict(found)


async def synced(*musivums: Musivum, least: int) -> None:
    """Wait until both follow each other and both have `least` entries of the other."""
    with trio.fail_after(SYNC_SECONDS):
        while True:
            said = [await partner_of(each) for each in musivums]
            if all(
                each["state"] == "following" and each["behind"] == 0 and each["size"] >= least
                for each in said
            ):
                return
            await trio.sleep(0.2)


async def read(musivum: Musivum, other: Musivum) -> Read:
    """Both ledgers as one of them has them, its chain and balances verified, and the balances."""
    keys = load_or_create_key(musivum.home / "musivum.key")
    async with open_store(f"sqlite:///{musivum.home / 'musivum.db'}") as store:
        ledger = Ledger(keys, store, time.time)
        await ledger.check(whole=True)
        walks = [Walk(each.address.peer_id) for each in (musivum, other)]
        ledgers: list[list[Entry]] = [[], []]
        for walk, entries in zip(walks, ledgers, strict=True):
            while page := await ledger.page(walk.origin, walk.size):
                for payload in page:
                    walk.feed(payload)
                    entries.append(open_entry(payload))
        head = await ledger.head(walks[0].size)
        walks[0].check_head(open_head(head.payload, head.signature, keys.peer_id))
        balances = {each.account: each.balance for each in await ledger.accounts()}
    return Read(ledgers[0], ledgers[1], balances)


@dataclass(frozen=True)
class Read:
    """What one musivum has in its store."""

    own: list[Entry]
    others: list[Entry]
    balances: dict[str, int]


async def test_what_two_musivums_paid_is_paid_once_whenever_one_of_them_dies(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    a, b = two(tmp_path)
    issuers = [load_or_create_key(each.home / "musivum.key") for each in (a, b)]
    proofs = [a_proof(number, issuers[number % 2]) for number in range(FIRST + SECOND + BOTH)]
    try:
        await settle_apart(a, b, proofs)
        kills = await die_in_a_page(b)
        await settled_between(a, b)
        for each in (a, b):
            assert await settle(each, proofs) == Counter(already_paid=len(proofs))
    finally:
        for each in (a, b):
            if each.process is not None:
                each.end()
    at_a, at_b = await read(a, b), await read(b, a)
    assert (at_a.own, at_a.others) == (at_b.others, at_b.own)
    standing: Counter[bytes] = Counter()
    for entry in (*at_a.own, *at_b.own):
        standing[entry.request_id] += {"payment": 1, "reversal": -1}.get(entry.kind, 0)
    once = sum(standing[number.to_bytes(16, "big")] == 1 for number in range(len(proofs)))
    taken_back = sum(entry.kind == "reversal" for entry in (*at_a.own, *at_b.own))
    sums = [sum(each.balances.values()) for each in (at_a, at_b)]
    line = (
        f"fed proofs={len(proofs)} paid_once={once} both={BOTH} reversals={taken_back} "
        f"kills={kills} sums={sums[0]}/{sums[1]} same_balances={at_a.balances == at_b.balances} "
        f"chains={len(at_a.own)}+{len(at_b.own)}"
    )
    print(f"\n{line}")  # noqa: T201 - what a run is for
    record_property("fed", line)
    assert (once, taken_back, sums) == (len(proofs), BOTH, [0, 0])
    assert at_a.balances == at_b.balances


async def settle_apart(a: Musivum, b: Musivum, proofs: Sequence[SignedProof]) -> None:
    """Each is paid its proofs while the other is not there; A runs afterwards."""
    first, second, both = proofs[:FIRST], proofs[FIRST:-BOTH], proofs[-BOTH:]
    await a.restart()
    assert await settle(a, [*first, *both]) == Counter(paid=FIRST + BOTH)
    assert (await partner_of(a))["state"] == "away"
    a.end()
    await b.restart()
    assert await settle(b, [*second, *both]) == Counter(paid=SECOND + BOTH)
    b.end()
    await a.restart()


async def die_in_a_page(b: Musivum) -> int:
    """Kill it at every point of its first page of A's; it runs afterwards. Returns how often."""
    for point in POINTS:
        trap(b.home).write_text(point)
        b.start()
        assert await b.ended() == -signal.SIGKILL, b.errors
        assert not trap(b.home).exists()
    await b.restart()
    return len(POINTS)


async def settled_between(a: Musivum, b: Musivum) -> None:
    """Wait until each has all of the other's entries, those that took something back included."""
    with trio.fail_after(SYNC_SECONDS):
        while await reversals(a, b) < BOTH:  # noqa: ASYNC110 - of other processes
            await trio.sleep(0.5)
    # No head is older than that.
    await trio.sleep(HEAD_SECONDS + 1)
    await synced(a, b, least=SECOND + BOTH)


async def reversals(*musivums: Musivum) -> int:
    """How many payments were taken back, as each says of itself."""
    return sum([(await partner_of(each))["reversals"] for each in musivums])
