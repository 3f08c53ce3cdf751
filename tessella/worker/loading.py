"""From a range to what serves it: the shard is read in the compute thread, the loop goes on."""

from __future__ import annotations

from collections.abc import Callable

import trio

from tessella.core.layers import LayerRange
from tessella.core.tensors import chunk_positions
from tessella.engine.compute import Job
from tessella.engine.memory import free_memory
from tessella.engine.shard import Shard, load_shard
from tessella.engine.tokenizer import Tokenizer
from tessella.worker.entry import Entry
from tessella.worker.ground import Ground
from tessella.worker.hops import Hops
from tessella.worker.limits import input_limits
from tessella.worker.model import Model
from tessella.worker.prompts import Prompts
from tessella.worker.sessions import SessionLimits, Sessions
from tessella.worker.state import Loaded
from tessella.worker.tokens import TokenDesk
from tessella.worker.trust import Neighbourhood

Note = Callable[[int, int], None]
"""Called in the loop with bytes that are loaded and bytes to load, after each tensor."""


class Loader:
    """Loads shards of one model, and keeps none of them."""

    def __init__(
        self,
        model: Model,
        ground: Ground,
        around: Neighbourhood,
        desk: TokenDesk,
        api_url: str = "",
        *,
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        """`desk` is where the tokens of every shard's sessions arrive; `api_url` is where this node
        answers over HTTP, empty if it does not. `forget` is called before each load: what was kept
        of another range is of no use."""
        self._forget = forget
        self._api_url = api_url
        self._model = model
        self._ground = ground
        self._around = around
        self._desk = desk
        # The same for every range, and a second's work for a large vocabulary.
        self._tokenizer: Tokenizer | None = None

    async def load(self, layers: LayerRange, note: Note) -> Loaded:
        """The shard of a range, and what works with it.

        Cancelling stops it between two tensors, and has freed what was loaded, but for what the
        garbage collector has to find. Raises what `load_shard` and the tokenizer raise.
        """
        model = self._model
        self._forget()
        token = trio.lowlevel.current_trio_token()

        def work(job: Job) -> tuple[Shard, Tokenizer]:
            def progress(loaded: int, total: int) -> None:
                job.advance()
                token.run_sync_soon(note, loaded, total)

            tokenizer = self._tokenizer or model.tokenizer()
            shard = load_shard(
                model.checkpoint,
                layers,
                device=model.device,
                dtype=model.dtype,
                on_progress=progress,
            )
            return shard, tokenizer

        shard, tokenizer = await self._ground.compute.run(work)
        self._tokenizer = tokenizer
        self._around.counters.forget_steps()
        return self._loaded(shard, tokenizer)

    def _loaded(self, shard: Shard, tokenizer: Tokenizer) -> Loaded:
        model, around = self._model, self._around
        served, sessions = model.served(shard), self._sessions(shard)
        limits = input_limits(
            shard,
            context=served.context,
            kv_bytes=sessions.kv_limit,
            free_bytes=free_memory(shard.device.value),
            declared=model.config.max_input_tokens,
        )
        hidden = model.checkpoint.shape.hidden
        entry = Entry(
            host=self._ground.host,
            served=served,
            sessions=sessions,
            around=around,
            desk=self._desk,
            prompts=Prompts(tokenizer, shard.shape.vocab, limits),
            eos_ids=model.checkpoint.eos_ids,
            # More than a stage takes in one piece would be refused by the next one.
            prefill_chunk=min(model.config.prefill_chunk, chunk_positions(hidden, shard.dtype)),
            api_url=self._api_url,
        )
        hops = Hops(
            ourselves=self._ground.host.address.peer_id,
            served=served,
            sessions=sessions,
            around=around,
            tokenizer=tokenizer,
            eos_ids=model.checkpoint.eos_ids,
        )
        return Loaded(entry, hops)

    def _sessions(self, shard: Shard) -> Sessions:
        config = self._model.config
        limits = SessionLimits(
            sessions=config.max_sessions,
            kv_bytes=config.slots * shard.kv_bytes(self._model.context, shard.layers),
        )
        return Sessions(shard, self._ground.compute, self._around.counters, limits)
