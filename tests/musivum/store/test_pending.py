"""Which change of a record is written, whoever made it and whatever became of the batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musivum.store import pending as limits
from musivum.store.changes import (
    Change,
    DropNode,
    DropReputation,
    PutManifest,
    PutNode,
    PutReputation,
    key_of,
)
from musivum.store.pending import Pending
from musivum.store.records import SavedManifest, SavedNode, SavedReputation
from tessella.core.errors import StoreUnavailable
from tessella.core.ids import ModelId, PeerId

STEPS = ["note", "save", "take", "ok", "full"]


def joined(peer: str, joins: int) -> Change:
    return PutReputation(SavedReputation(peer_id=PeerId(peer), joins=joins))


def joins(change: Change) -> tuple[str, int]:
    assert isinstance(change, PutReputation)
    return change.reputation.peer_id, change.reputation.joins


def test_one_record_has_one_key_whether_it_is_put_or_dropped(
    a_node: Callable[..., SavedNode],
) -> None:
    assert key_of(PutNode(a_node("a"))) == key_of(DropNode(PeerId("a"))) == ("node", "a")
    assert key_of(joined("a", 1)) == key_of(DropReputation(PeerId("a"))) == ("reputation", "a")
    manifest = SavedManifest(model=ModelId("a"), document=b"", published_at=0.0)
    assert key_of(PutManifest(manifest)) == ("manifest", "a")


def test_of_a_record_only_the_last_change_is_written() -> None:
    pending = Pending()
    pending.note([joined("a", 1)])
    pending.save([joined("a", 2), joined("b", 1)])
    pending.note([joined("b", 2)])
    assert set(pending.take().changes) == {joined("a", 2), joined("b", 2)}
    assert pending.take().changes == ()


def test_a_failed_batch_forgets_its_saves_and_keeps_its_notes() -> None:
    pending = Pending()
    pending.note([joined("a", 1), joined("b", 1)])
    waiter = pending.save([joined("a", 2), joined("c", 1)])
    assert pending.take().waiters == (waiter,)
    pending.note([joined("b", 2)])
    pending.put_back()
    assert set(pending.take().changes) == {joined("a", 1), joined("b", 2)}


def test_a_save_made_during_a_batch_wins_over_the_notes_that_are_put_back() -> None:
    pending = Pending()
    pending.note([joined("a", 1)])
    pending.take()
    pending.save([joined("a", 2)])
    pending.put_back()
    assert pending.take().changes == (joined("a", 2),)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(STEPS))))
def test_the_last_note_or_acknowledged_save_is_what_is_written(
    steps: list[tuple[str, str]],
) -> None:
    pending, batch = Pending(), None
    written, expected = dict[str, int](), dict[str, int]()
    waiting, flying = list[tuple[str, int, str]](), list[tuple[str, int, str]]()

    for number, (peer, step) in enumerate([*steps, ("", "ok"), ("", "take"), ("", "ok")]):
        if step == "note":
            pending.note([joined(peer, number)])
            waiting.append((peer, number, step))
        elif step == "save":
            pending.save([joined(peer, number)])
            waiting.append((peer, number, step))
        elif step == "take" and batch is None:
            batch = pending.take()
            waiting, flying = [], waiting
        elif step == "ok" and batch is not None:
            written.update(joins(change) for change in batch.changes)
            expected.update((peer, number) for peer, number, _ in flying)
            pending.settle()
            batch, flying = None, []
        elif step == "full" and batch is not None:
            pending.put_back()
            waiting = [one for one in flying if one[2] == "note"] + waiting
            batch, flying = None, []
    assert written == expected


def test_notes_are_few_and_a_record_noted_again_is_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MAX_NOTES", 2)
    pending = Pending()
    pending.note([joined("a", 1), joined("b", 1)])
    pending.note([joined("a", 2)])
    with pytest.raises(StoreUnavailable, match="2 notes wait"):
        pending.note([joined("a", 3), joined("c", 1)])
    pending.take()
    with pytest.raises(StoreUnavailable):
        pending.note([joined("c", 1)])
    pending.put_back()
    assert set(pending.take().changes) == {joined("a", 2), joined("b", 1)}
    pending.settle()
    pending.note([joined("c", 1)])


def test_saves_that_wait_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SAVED_CHANGES", 2)
    pending = Pending()
    pending.save([joined("a", 1), joined("b", 1)])
    with pytest.raises(StoreUnavailable, match="2 changes wait"):
        pending.save([joined("c", 1)])
    assert len(pending.take().waiters) == 1
