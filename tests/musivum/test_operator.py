"""The operator's token, and what it opens."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from trio.testing import MockClock

from musivum import operator
from musivum.bodies import NoArguments, PublishBody, ReputationArguments
from musivum.books import Books, open_books
from musivum.config import MusivumConfig
from musivum.operator import FAILURE_WINDOW, MAX_FAILURES, AdminGate, Operator
from musivum.registration import read_registration
from musivum.saved import Clocks
from musivum.store import SavedReputation
from musivum.store.memory import MemoryStore
from musivum.testing import EPOCH, HOUSE, SMALL, a_registration, calling, running
from p2p.testing import MemoryNetwork
from tessella.core.contracts import contract_of
from tessella.core.errors import (
    AdminOnly,
    BadManifest,
    BadRequest,
    StoreUnavailable,
    TooManyRequests,
)
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.manifest import Manifest, manifest_document
from tessella.core.messages import Document, Fail, Message, Operate
from tessella.core.resplit import Move
from tessella.core.shape_json import encode_shape

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


class Rebalancer:
    """In place of Moves: what it began."""

    def __init__(self, *moves: Move) -> None:
        self._moves = list(moves)

    async def rebalance(self) -> list[Move]:
        return self._moves


async def opened(store: MemoryStore) -> Books:
    return await open_books(CONFIG, store, Clocks(lambda: EPOCH))


def an_operator(books: Books, *moves: Move) -> Operator:
    return Operator(books, Rebalancer(*moves))  # type: ignore[arg-type]


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
    monkeypatch.setattr("musivum.manifests.MAX_PUBLISHED", 1)
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
