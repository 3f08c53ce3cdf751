"""The life of a node's shards, one after another: load, serve, drain, free, and the next.

    PendingLoad   the range is being loaded; another assignment begins another load at once
    Healthy       it serves, and is listed, until another range is wanted, or none
    Saturated     sessions ran out of memory: none begins, those that live go on
    Draining      no session begins; those that live may finish, and are ended when time is up
    Paused        the same, and then nothing is held until its owner, or whoever paused it, resumes

What the node says of itself at any moment is what it holds then.
"""

from __future__ import annotations

import gc
import logging
import math
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import trio

from tessella.core.errors import LocalError, TessellaError
from tessella.core.layers import LayerRange
from tessella.core.peers import NodeStatus
from tessella.engine.shard import Shard
from tessella.worker.assignment import Assignment
from tessella.worker.loading import Loader
from tessella.worker.mesh import Mesh
from tessella.worker.serving import Serving
from tessella.worker.state import Loaded
from tessella.worker.tracker import is_away

logger = logging.getLogger(__name__)

Tell = Callable[[dict[str, Any]], None]
"""Takes an event of the node's life: `{"event": "assigned" | "loading" | "ready" | "paused", …}`.

They come again, in this order, with every range that follows.
"""

EXPIRE_SECONDS = 1.0
# What still holds a shard is an error on its way to a peer: as long as that may take to be sent
# and the stream to be closed. How often to look: the collector stops everything for a while.
FREE_SECONDS, FREE_LOOK_SECONDS = 12.0, 0.5
# How often a node that ran out of memory looks whether there is some again.
MEMORY_LOOK_SECONDS = 1.0
WAY_OUT = (
    "sessions ran out of memory in a row, so none is taken for %.0f s: less of it is needed with a "
    "lower vram_mb, parallel_slots or context_size"
)


class Shards:
    """At most one shard at a time. Start `run` once, after joining."""

    def __init__(
        self,
        loader: Loader,
        assignment: Assignment,
        serving: Serving,
        mesh: Mesh,
        *,
        drain_seconds: float,
        tell: Tell,
    ) -> None:
        """`drain_seconds` is what live sessions have to finish in when the shard has to go."""
        self._loader = loader
        self._assignment = assignment
        self._serving = serving
        self._state = serving.state
        self._mesh = mesh
        self._drain_seconds = drain_seconds
        self._tell = tell
        self._running = trio.CancelScope()

    async def run(self) -> None:
        """Hold what is assigned, until cancelled or `finish`.

        Raises what loading, `Mesh.ready` and, where the node was paused, joining again raise.
        """
        with self._running:
            while True:
                if self._assignment.is_resting:
                    await self._rest()
                else:
                    await self._hold(self._assignment.layers)

    async def finish(self) -> None:
        """Let the sessions that live finish, within the time they have, and begin nothing more.

        For a node that leaves: what is loaded stays so, and what is being loaded is given up.
        Sessions that are left are ended with the reason.
        """
        self._running.cancel()
        self._state.status, self._state.moving_to = NodeStatus.DRAINING, None
        self._mesh.changed()
        with trio.move_on_after(self._drain_seconds):
            await self._serving.unused()
        await self._serving.end()

    async def _rest(self) -> None:
        """Hold nothing for as long as the node is paused; then what the mesh wants by that time."""
        self._state.status, self._state.moving_to = NodeStatus.PAUSED, None
        self._mesh.changed()
        self._tell({"event": "paused"})
        # What loads next would use it again; here others shall have it.
        await self._state.memory.release()
        await self._assignment.awake()
        try:
            self._assignment.begin(await self._mesh.join())
        except TessellaError as exc:
            if not is_away(exc):
                raise
            # Whoever assigns hears of it by the heartbeats, once there is somebody to hear.
            logger.warning("musivum is away, going on with layers %s", self._assignment.layers)

    async def _hold(self, layers: LayerRange) -> None:
        """One range, from the load until nothing of it is left."""
        with self._assignment.while_wanted(layers):
            await self._load(layers)
        if self._state.loaded is None:
            # What was read of it is left in cycles, of frames and of what they raised.
            gc.collect()
        while self._state.loaded is not None:
            with self._assignment.while_wanted(layers):
                await self._serve(layers)
            await self._drain(layers)

    async def _load(self, layers: LayerRange) -> None:
        load = self._state.begin_load(layers, trio.current_time())
        self._mesh.changed()
        self._tell({"event": "assigned", "layer_range": [layers.start, layers.stop]})

        def note(loaded: int, total: int) -> None:
            # The last words of a load that was given up come late.
            if self._state.load is load:
                load.loaded_bytes, load.total_bytes = loaded, total
                self._tell({"event": "loading", "loaded_bytes": loaded, "total_bytes": total})

        self._state.loaded = await self._loader.load(layers, note)

    async def _serve(self, layers: LayerRange) -> None:
        # What is not wanted any more is not said to be served, not even for a moment.
        await trio.lowlevel.checkpoint_if_cancelled()
        self._state.status, self._state.moving_to = NodeStatus.HEALTHY, None
        await self._mesh.ready(layers)
        self._tell(self._ready())
        await self._watch_memory()

    async def _watch_memory(self) -> None:
        """Take sessions while there is memory for them, until cancelled."""
        served = self._loaded.entry.served
        needed = served.shard.kv_bytes(served.context, served.shard.layers)
        del served  # this frame is not to keep it
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._say_saturated, needed)
            nursery.start_soon(self._release_memory)

    async def _say_saturated(self, needed: int) -> NoReturn:
        memory, is_saturated = self._state.memory, False
        seen = memory.count
        while True:
            was_saturated = is_saturated
            is_saturated = memory.is_saturated(needed, was_saturated)
            if is_saturated and not was_saturated:
                logger.warning(WAY_OUT, memory.quiet_left)
            self._say(NodeStatus.SATURATED if is_saturated else NodeStatus.HEALTHY)
            with trio.move_on_after(MEMORY_LOOK_SECONDS if is_saturated else math.inf):
                seen = await memory.ran_out(seen)

    async def _release_memory(self) -> NoReturn:
        memory = self._state.memory
        seen = memory.count
        while True:
            if self._state.status is not NodeStatus.SATURATED:
                seen = await memory.ran_out(seen)
            # What ran out of memory is let go of when its error has reached whoever asked.
            await trio.sleep(MEMORY_LOOK_SECONDS)
            await memory.release()

    def _say(self, status: NodeStatus) -> None:
        if self._state.status is not status:
            logger.info("%s -> %s", self._state.status.value, status.value)
            self._state.status = status
            self._mesh.changed()

    def _ready(self) -> dict[str, Any]:
        entry = self._loaded.entry
        ourselves = entry.host.address
        return {
            "event": "ready",
            "peer_id": ourselves.peer_id,
            "addrs": list(ourselves.full()),
            "api_url": entry.api_url or None,
        }

    async def _drain(self, layers: LayerRange) -> None:
        """Free the shard, unless its range is wanted again before a session was ended for it."""
        state = self._state
        self._say_why(layers)
        with self._assignment.while_unwanted(layers) as scope:
            with trio.move_on_after(self._drain_seconds):
                await self._serving.unused()
        if scope.cancelled_caught:
            return
        await self._serving.end()
        self._loaded.entry.sessions.forget_parked()
        shard = weakref.ref(self._loaded.entry.served.shard)
        state.loaded = None
        await _gone(shard)

    def _say_why(self, layers: LayerRange) -> None:
        """The shard has to go: the node is paused, or is to hold other layers."""
        state, moving_to = self._state, self._assignment.layers
        if self._assignment.is_resting:
            logger.info("pausing: layers %s are let go of", layers)
            state.status, state.moving_to = NodeStatus.PAUSED, None
        else:
            logger.info("moving from layers %s to %s", layers, moving_to)
            state.status, state.moving_to = NodeStatus.DRAINING, moving_to
        self._mesh.changed()

    @property
    def _loaded(self) -> Loaded:
        if self._state.loaded is None:
            raise LocalError("no shard is loaded")
        return self._state.loaded

    async def expire(self) -> NoReturn:
        """Free parked sessions whose deadline passed, until cancelled."""
        while True:
            await trio.sleep(EXPIRE_SECONDS)
            if self._state.loaded is not None:
                self._state.loaded.entry.sessions.expire()


async def _gone(shard: weakref.ref[Shard]) -> None:
    """Wait until a shard's memory is free, so that the next one has room."""
    give_up = trio.current_time() + FREE_SECONDS
    while trio.current_time() < give_up:
        # Sessions that ended refer to it in cycles, of tasks and of what they raised.
        for generation in range(3):
            if shard() is None:
                return
            gc.collect(generation)
        await trio.sleep(FREE_LOOK_SECONDS)
    logger.warning("the memory of the last shard is still in use")
