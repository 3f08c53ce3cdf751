"""The operator's token, and what it opens."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from trio.testing import MockClock

from musivum import operator
from musivum.audit_room import NoAudits, Penalty
from musivum.audits.standing import BAR_DAYS
from musivum.bodies.fields import NoArguments
from musivum.bodies.ledger import (
    AppealBody,
    CreditsArguments,
    LatestArguments,
    SlashBody,
    SnapshotArguments,
)
from musivum.bodies.operator import PublishBody, ReputationArguments
from musivum.clocks import Clocks
from musivum.config import MusivumConfig
from musivum.ledger import Ledger
from musivum.nodes.books import Books, open_books
from musivum.nodes.registration import read_registration
from musivum.operator import FAILURE_WINDOW, MAX_FAILURES, AdminGate, Operator
from musivum.store import SavedReputation
from musivum.store.memory import MemoryStore
from musivum.testing import EPOCH, HOUSE, SMALL, a_registration, calling, running
from p2p.testing import MemoryNetwork
from tessella.core.contracts import contract_of
from tessella.core.errors import (
    AdminOnly,
    BadManifest,
    BadRequest,
    Refused,
    StoreUnavailable,
    TooManyRequests,
    UnknownEntry,
)
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.manifest import Manifest, manifest_document
from tessella.core.messages import Document, Fail, Message, Operate
from tessella.core.resplit import Move
from tessella.core.shape_json import encode_shape
from tests.core.work import MUSIVUM, NOW, Work, identity

TOKEN = "the token of a test, of some length"
CONFIG = MusivumConfig(min_vram_mb=0)
SMALL_ID = ModelId("small")
WISH = read_registration(a_registration(), HOUSE)


def try_wrong(gate: AdminGate, source: str, now: float, times: int = MAX_FAILURES) -> None:
    for _ in range(times):
        with pytest.raises(AdminOnly):
            gate.check("wrong", source, now)


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é"])
def test_only_the_token_opens(token: str) -> None:
    gate = AdminGate(TOKEN)
    with pytest.raises(AdminOnly, match="admin token"):
        gate.check(token, "here", 0.0)
    gate.check(TOKEN, "here", 0.0)


@pytest.mark.parametrize("token", ["", "anything"])
def test_where_there_is_no_token_nobody_is_the_operator(token: str) -> None:
    with pytest.raises(AdminOnly):
        AdminGate("").check(token, "here", 0.0)


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return a == b

    monkeypatch.setattr("hmac.compare_digest", compare)
    AdminGate(TOKEN).check(TOKEN, "here", 0.0)
    assert compared == [(TOKEN.encode(), TOKEN.encode())]


def test_after_some_failures_a_source_is_stopped_and_no_other_is() -> None:
    gate = AdminGate(TOKEN)
    try_wrong(gate, "here", 0.0)
    with pytest.raises(TooManyRequests) as caught:
        gate.check("wrong", "here", FAILURE_WINDOW - 1)
    assert caught.value.status == 429
    try_wrong(gate, "elsewhere", 0.0, 1)


def test_the_right_token_passes_whoever_failed_from_its_address() -> None:
    gate = AdminGate(TOKEN)
    try_wrong(gate, "a proxy", 0.0)
    gate.check(TOKEN, "a proxy", 1.0)


def test_the_window_passes() -> None:
    gate = AdminGate(TOKEN)
    try_wrong(gate, "here", 0.0, 1)
    try_wrong(gate, "here", 30.0, MAX_FAILURES - 1)
    with pytest.raises(TooManyRequests):
        gate.check("wrong", "here", FAILURE_WINDOW - 0.1)
    try_wrong(gate, "here", FAILURE_WINDOW, 1)
    with pytest.raises(TooManyRequests):
        gate.check("wrong", "here", FAILURE_WINDOW + 0.1)
    try_wrong(gate, "here", 30.0 + FAILURE_WINDOW, 1)


def test_whoever_is_stopped_gains_nothing_by_trying_on() -> None:
    gate = AdminGate(TOKEN)
    try_wrong(gate, "here", 0.0)
    for _ in range(100):
        with pytest.raises(TooManyRequests):
            gate.check("wrong", "here", 1.0)
    try_wrong(gate, "here", FAILURE_WINDOW, 1)


def test_a_million_sources_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "MAX_REMEMBERED", 3)
    gate = AdminGate(TOKEN)
    for number in range(10):
        try_wrong(gate, f"source {number}", 0.0)
    assert len(gate._failures) == 3
    with pytest.raises(TooManyRequests):
        gate.check("wrong", "source 9", 0.0)


@dataclass
class Done:
    """A penalty."""

    micro: int
    balance: int = 7
    until: float | None = None
    sequence: int = 3


@dataclass
class Penalties(NoAudits):
    """In place of Audits: what it was asked to do."""

    asked: list[object] = field(default_factory=list)

    async def slash(
        self, peer_id: PeerId, reason: str, micro: int | None = None, days: float = BAR_DAYS
    ) -> Penalty:
        self.asked.append((peer_id, reason, micro, days))
        return Done(-5 if micro is None else -micro, until=EPOCH + days)

    async def appeal(self, peer_id: PeerId, reason: str) -> Penalty:
        self.asked.append((peer_id, reason))
        return Done(9)


class Rebalancer:
    """In place of Moves: what it began."""

    def __init__(self, *moves: Move) -> None:
        self._moves = list(moves)

    async def rebalance(self) -> list[Move]:
        return self._moves


async def opened(store: MemoryStore) -> Books:
    return await open_books(CONFIG, store, Clocks(lambda: EPOCH))


def an_operator(books: Books, *moves: Move) -> Operator:
    ledger = Ledger(MUSIVUM, books.store, lambda: NOW)
    return Operator(books, Rebalancer(*moves), ledger, Penalties())  # type: ignore[arg-type]


def a_body(**changes: Any) -> PublishBody:
    document = manifest_document(Manifest(model=SMALL_ID, shape=SMALL))
    return PublishBody.model_validate({**document, **changes})


async def test_a_published_manifest_binds_at_once_and_is_kept() -> None:
    store = MemoryStore()
    books = await opened(store)
    published = await an_operator(books).publish(a_body(contract=None))
    assert (published.model_id, published.contract) == ("small", WISH.contract)
    assert books.manifests.of(SMALL_ID).is_published
    with pytest.raises(BadManifest):
        books.manifests.check(replace(WISH, contract="0" * 64))
    (saved,) = (await store.load()).manifests
    assert (saved.model, saved.published_at) == ("small", EPOCH)
    again = await opened(store)
    assert again.manifests.all() == books.manifests.all()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"contract": "0" * 64}, "manifest.contract"),
        ({"shape": {}}, "manifest.shape"),
        ({"files": [{"name": "../x", "bytes": 1, "sha256": "0" * 64}]}, "name"),
    ],
)
async def test_what_is_no_manifest_is_not_published(changes: dict[str, Any], named: str) -> None:
    books = await opened(MemoryStore())
    with pytest.raises(BadManifest, match=named):
        await an_operator(books).publish(a_body(**changes))
    assert books.manifests.all() == []


async def test_a_manifest_that_cannot_be_kept_binds_nobody() -> None:
    store = MemoryStore()
    books = await opened(store)
    store.error = StoreUnavailable("the disk is full")
    with pytest.raises(StoreUnavailable):
        await an_operator(books).publish(a_body())
    assert books.manifests.all() == []
    books.manifests.check(replace(WISH, contract="0" * 64))


async def test_a_manifest_that_could_not_be_read_after_a_restart_is_not_published() -> None:
    # Each of these letters takes 3 bytes in a request, and 6 where manifests are kept.
    files = [{"name": f"{n}" + "語" * 200, "bytes": 1, "sha256": "0" * 64} for n in range(200)]
    store = MemoryStore()
    books = await opened(store)
    assert len(json.dumps(files, ensure_ascii=False).encode()) < 192 * 1024
    with pytest.raises(BadManifest, match=r"a manifest of \d+ bytes, over 196608"):
        await an_operator(books).publish(a_body(files=files))
    assert (await opened(store)).manifests.all() == books.manifests.all() == []


async def test_no_more_manifests_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("musivum.nodes.manifests.MAX_PUBLISHED", 1)
    store = MemoryStore()
    books = await opened(store)
    await an_operator(books).publish(a_body())
    with pytest.raises(TooManyRequests):
        await an_operator(books).publish(a_body(model_id="another"))
    await an_operator(books).publish(a_body())
    assert [saved.model for saved in (await store.load()).manifests] == ["small"]


async def test_what_was_moved_is_told() -> None:
    books = await opened(MemoryStore())
    move = Move(PeerId("a"), LayerRange(0, 4), LayerRange(4, 10), "nobody holds layers 4:10")
    done = await an_operator(books, move).rebalance(NoArguments())
    assert done.model_dump() == {
        "moves": [
            {
                "peer_id": "a",
                "old": (0, 4),
                "new": (4, 10),
                "reason": "nobody holds layers 4:10",
            }
        ]
    }


async def test_the_counters_of_one_peer_or_of_all() -> None:
    books = await opened(MemoryStore())
    books.reputations.joined(PeerId("b"))
    books.reputations.went_offline(PeerId("a"))
    ours = an_operator(books)
    (one,) = await ours.reputation(ReputationArguments(peer_id="a"))
    assert one.model_dump() == {
        "peer_id": "a",
        "score": 0.3333,
        **{name: 0 for name in SavedReputation.__dataclass_fields__ if name != "peer_id"},
        "offline": 1,
        "audits_passed": 0.0,
        "audits_rejected": 0.0,
        "slashes": 0.0,
    }
    everybody = await ours.reputation(ReputationArguments(all=True))
    assert [each.peer_id for each in everybody] == ["a", "b"]
    (stranger,) = await ours.reputation(ReputationArguments(peer_id="z"))
    assert (stranger.score, stranger.joins) == (0.5, 0)
    with pytest.raises(BadRequest, match="peer_id=PEER, or all=true"):
        await ours.reputation(ReputationArguments())


def code(answer: Message) -> str:
    assert isinstance(answer, Fail), answer
    return answer.code


async def test_orders_over_libp2p_take_the_token_and_are_stopped_by_peer(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork()
    order = Operate(TOKEN, "/weights/manifest", a_body().model_dump_json().encode())
    async with (
        running(net, b"t" * 32, CONFIG, token=TOKEN) as tracker,
        calling(net, b"1" * 32, tracker) as operating,
        calling(net, b"2" * 32, tracker) as guessing,
    ):
        done = await operating.ask(order)
        assert isinstance(done, Document)
        assert json.loads(done.document) == {"model_id": "small", "contract": WISH.contract}
        for _ in range(MAX_FAILURES):
            assert code(await guessing.ask(replace(order, token="x"))) == "admin_only"
        assert code(await guessing.ask(replace(order, token="x"))) == "too_many_requests"
        assert isinstance(await operating.ask(order), Document)
        wider = replace(SMALL, vocab=8192)
        other = replace(a_registration(), contract=contract_of(wider), shape=encode_shape(wider))
        refused = await operating.register(other)
        assert code(refused) == "bad_manifest"
        assert WISH.contract in refused.text


async def a_paid_ledger(*requests: int) -> tuple[Operator, Penalties]:
    """An operator whose mesh paid a chain of two for each of these requests."""
    store = MemoryStore()
    ledger = Ledger(MUSIVUM, store, lambda: NOW)
    for number in requests:
        work = Work([identity(1), identity(2)], request_id=bytes([number]) * 16)
        await ledger.settle([work.proof(0), work.proof(1)])
    penalties = Penalties()
    books = await opened(store)
    return Operator(books, Rebalancer(), ledger, penalties), penalties  # type: ignore[arg-type]


async def test_the_latest_entries_are_read_from_the_last_one_back() -> None:
    they, _ = await a_paid_ledger(1, 2)
    entries = await they.entries(LatestArguments(limit=3))
    assert [entry.sequence for entry in entries] == [3, 2, 1]
    assert [entry.kind for entry in entries] == ["payment"] * 3
    first = entries[0]
    assert {line.account: line.micro for line in first.lines} == {
        first.worker: 500_000,
        "mint": -500_000,
    }
    assert (first.request_id, first.issuer) == ("02" * 16, MUSIVUM.peer_id)
    assert len(await they.entries(LatestArguments())) == 4


async def test_a_snapshot_is_read_page_by_page_to_its_head() -> None:
    they, _ = await a_paid_ledger(1, 2)
    first = await they.snapshot(SnapshotArguments(limit=3))
    rest = await they.snapshot(SnapshotArguments(since=first.next, limit=3))
    assert (first.next, len(first.entries), len(rest.entries), rest.next) == (3, 3, 1, 4)
    assert rest.head == first.head
    assert (await they.snapshot(SnapshotArguments(since=4))).entries == []
    with pytest.raises(UnknownEntry):
        await they.snapshot(SnapshotArguments(since=5))


async def test_credits_are_of_one_account_or_of_all() -> None:
    they, _ = await a_paid_ledger(1)
    worker = identity(1).peer_id
    (one,) = await they.credits(CreditsArguments(peer_id=worker))
    assert (one.peer_id, one.micro, one.credits, one.tier) == (worker, 500_000, 0.5, "standard")
    everybody = await they.credits(CreditsArguments(all=True))
    assert sum(each.micro for each in everybody) == 0
    assert {each.peer_id for each in everybody} == {worker, identity(2).peer_id, "mint"}
    (unknown,) = await they.credits(CreditsArguments(peer_id="nobody"))
    assert (unknown.micro, unknown.tier) == (0, "leech")
    with pytest.raises(BadRequest, match="peer_id"):
        await they.credits(CreditsArguments())


async def test_a_penalty_is_taken_in_credits_and_given_back() -> None:
    they, penalties = await a_paid_ledger()
    peer = identity(1).peer_id
    done = await they.slash(SlashBody(peer_id=peer, reason="echo", credits=1.25, days=2))
    assert (done.micro, done.until, done.sequence) == (-1_250_000, EPOCH + 2, 3)
    await they.slash(SlashBody(peer_id=peer, reason="echo"))
    assert (await they.appeal(AppealBody(peer_id=peer, reason="a fault of ours"))).micro == 9
    assert penalties.asked == [
        (peer, "echo", 1_250_000, 2.0),
        (peer, "echo", None, BAR_DAYS),
        (peer, "a fault of ours"),
    ]


async def test_nobody_is_slashed_by_what_is_no_peer_id() -> None:
    they, penalties = await a_paid_ledger()
    for text in ("mint", "12D3KooW"):
        with pytest.raises(BadRequest, match="peer_id"):
            await they.slash(SlashBody(peer_id=text, reason="x"))
        with pytest.raises(BadRequest, match="peer_id"):
            await they.appeal(AppealBody(peer_id=text, reason="x"))
    assert penalties.asked == []


async def test_where_nothing_is_audited_no_penalty_is_kept() -> None:
    books = await opened(MemoryStore())
    ledger = Ledger(MUSIVUM, books.store, lambda: NOW)
    they = Operator(books, Rebalancer(), ledger, NoAudits())  # type: ignore[arg-type]
    peer = identity(1).peer_id
    with pytest.raises(Refused):
        await they.slash(SlashBody(peer_id=peer, reason="x"))
    with pytest.raises(Refused):
        await they.appeal(AppealBody(peer_id=peer, reason="x"))
