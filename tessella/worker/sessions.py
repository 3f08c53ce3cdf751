"""Every session that holds KV at this node, inside a budget of sessions and bytes.

A live session is never evicted: what does not fit is refused. A parked one only waits for its
deadline, and makes room for a live one when it must.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import trio

from tessella.core.errors import LocalError, OutOfTurn, TooManySessions
from tessella.core.ids import PeerId, SessionId
from tessella.core.layers import LayerRange
from tessella.core.messages import Open, Park
from tessella.core.session import MAX_PARK_SECONDS, Event, Expired, Lease, State
from tessella.core.tiers import Tier
from tessella.engine.shard import Shard
from tessella.worker.counters import Counters
from tessella.worker.proofs.witness import Witness
from tessella.worker.stage import Compute, Stage

Key = tuple[SessionId, int]


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How many sessions, and how many bytes of KV they may hold together."""

    sessions: int
    kv_bytes: int


class Sessions:
    """The sessions of one shard."""

    def __init__(
        self, shard: Shard, compute: Compute, counters: Counters, limits: SessionLimits
    ) -> None:
        self.shard = shard
        self._compute = compute
        self._counters = counters
        self._limits = limits
        self._held: dict[Key, Stage] = {}
        # Of parked sessions: who opened them, and may go on with them.
        self._owners: dict[Key, PeerId] = {}

    @property
    def kv_bytes(self) -> int:
        """Bytes of KV reserved by live and parked sessions."""
        return sum(stage.cache_bytes for stage in self._held.values())

    @property
    def kv_limit(self) -> int:
        """Bytes of KV that may be reserved."""
        return self._limits.kv_bytes

    @property
    def at_work(self) -> int:
        """Sessions that others wait behind: what is parked makes room for whoever comes."""
        return len(self._held) - len(self._parked())

    @property
    def tiers(self) -> dict[Tier, int]:
        """The sessions at work, by their tier."""
        at_work = [one for one in self._held.values() if one.lease.state is not State.PARKED]
        return {tier: sum(one.tier is tier for one in at_work) for tier in Tier}

    def leases(self) -> list[Lease]:
        """What each session holds."""
        return [stage.lease for stage in self._held.values()]

    @contextmanager
    def open(
        self,
        lease: Lease,
        layers: LayerRange,
        owner: PeerId,
        tier: Tier = Tier.LEECH,
        witness: Witness | None = None,
    ) -> Iterator[Stage]:
        """A stage for a session; its KV is freed on the way out, unless it was parked.

        It goes on with what `owner`, who opens it, parked in the epoch before, if that is still
        here, in the tier of this time; with a `witness` only if one saw that too. Raises OutOfTurn
        if that session is here already, TooManySessions if there is no room.
        """
        if lease.key in self._held:
            raise OutOfTurn("a session that is open here already")
        parked = self._parked_before(lease, layers, owner)
        if parked is not None and (witness is None or parked.witness is not None):
            stage = self._go_on(parked, lease, tier, witness)
        else:
            stage = self._begin(lease, layers, tier)
        stage.witness = witness
        self._held[lease.key], self._owners[lease.key] = stage, owner
        self._counters.sessions_opened += 1
        try:
            yield stage
        finally:
            # One that was parked a moment ago may have made room for another already.
            here = self._held.get(lease.key) is stage
            if here and stage.lease.state is not State.PARKED:
                self._free(lease.key)

    def _begin(self, lease: Lease, layers: LayerRange, tier: Tier) -> Stage:
        self._make_room(self.shard.kv_bytes(lease.capacity, layers))
        return Stage(lease, layers, self.shard, self._compute, self._counters, tier=tier)

    def _parked_before(self, lease: Lease, layers: LayerRange, owner: PeerId) -> Stage | None:
        parked = self.parked((lease.session_id, lease.epoch - 1), owner)
        return parked if parked is not None and parked.layers == layers else None

    def _go_on(self, parked: Stage, lease: Lease, tier: Tier, witness: Witness | None) -> Stage:
        key, layers = parked.lease.key, parked.layers
        # Its bytes are counted once: with the room that the session asks for now.
        del self._held[key]
        try:
            wanted = self.shard.kv_bytes(lease.capacity, layers)
            self._make_room(max(wanted, parked.cache_bytes))
        except TooManySessions:
            self._held[key] = parked
            raise
        del self._owners[key]
        gone_on, parked.lease = lease.go_on(parked.lease), parked.lease.close(Open)
        cache = parked.give_up_cache()
        if witness is not None and parked.witness is not None:
            witness.go_on_from(parked.witness)
        elif parked.witness is not None:
            parked.witness.end()
        return Stage(gone_on, layers, self.shard, self._compute, self._counters, cache, tier=tier)

    def parked(self, key: Key, owner: PeerId) -> Stage | None:
        """What `owner` parked under this key, if it is still here."""
        stage = self._held.get(key)
        waits = stage is not None and stage.lease.state is State.PARKED
        return stage if waits and self._owners.get(key) == owner else None

    def park(self, stage: Stage, event: Event, seconds: float) -> None:
        """Keep a stage's KV for a while after its stream is gone. `event` says why."""
        seconds = MAX_PARK_SECONDS if event is Park and seconds > MAX_PARK_SECONDS else seconds
        stage.lease = stage.lease.park(event, trio.current_time() + max(0.0, seconds))

    def expire(self) -> None:
        """Free the parked sessions whose deadline passed."""
        now = trio.current_time()
        for stage in self._parked():
            if stage.lease.parked_until <= now:
                stage.lease = stage.lease.close(Expired)
                self._free(stage.lease.key)

    def forget_parked(self) -> None:
        """Free what is parked: nobody can come back for it here."""
        for stage in self._parked():
            stage.lease = stage.lease.close(Expired)
            self._free(stage.lease.key)

    def _parked(self) -> list[Stage]:
        parked = [one for one in self._held.values() if one.lease.state is State.PARKED]
        return sorted(parked, key=lambda stage: stage.lease.parked_until)

    def _make_room(self, wanted: int) -> None:
        for stage in self._parked():
            if self._fits(wanted):
                return
            stage.lease = stage.lease.close(Expired)
            self._free(stage.lease.key)
        if not self._fits(wanted):
            raise TooManySessions(
                f"no room for {wanted} bytes of KV: {len(self._held)} of {self._limits.sessions} "
                f"sessions hold {self.kv_bytes} of {self._limits.kv_bytes} bytes"
            )

    def _fits(self, wanted: int) -> bool:
        room = self._limits.kv_bytes - self.kv_bytes
        return wanted <= room and len(self._held) < self._limits.sessions

    def _free(self, key: Key) -> None:
        stage = self._held.pop(key, None)
        self._owners.pop(key, None)
        if stage is None:
            raise LocalError("a session was freed twice")
        stage.free()
