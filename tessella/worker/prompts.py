"""What a request comes to, for this model: the ids of its prompt, and how to sample the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import trio

from tessella.core.completions import CompletionRequest
from tessella.core.errors import BadRequest, Busy, ContextTooLong, UnsupportedField
from tessella.core.sampling import Sampling
from tessella.core.tiers import Tier
from tessella.core.tool_choice import check_tools, forced_call
from tessella.engine.fill import encode_fill, fill_stop_ids
from tessella.engine.sampler import check_bias
from tessella.engine.tokenizer import Tokenizer
from tessella.worker.limits import InputLimits
from tessella.worker.tail import compile_grammar
from tessella.worker.turns import Turns

# A tokenizer reads about a million characters a second: below this the loop waits 20 ms at most,
# above it a thread is worth its while.
INLINE_CHARS = 16 * 1024
# Prompts that are read in threads: one takes up to a second a million characters, and hundreds of
# bytes for each of its tokens meanwhile.
MAX_READING = 2
# Seconds to wait for that, and for it.
READ_TIMEOUT = 30.0
# Long prompts that wait to be read, each with its text in memory: about what can be read before
# the last of them has waited for READ_TIMEOUT.
MAX_UNREAD = 64

_reading = Turns(MAX_READING, MAX_UNREAD, "long prompts")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the chain computes it."""

    prompt: list[int]
    sampling: Sampling
    """`max_tokens` is what the context has room for, at most."""

    @property
    def positions(self) -> int:
        """Positions of KV that it may come to: prompt and answer together."""
        return len(self.prompt) + self.sampling.max_tokens


@dataclass(frozen=True, slots=True)
class Prompts:
    """Reads requests for one model."""

    tokenizer: Tokenizer
    vocab: int
    """Rows of the model's head: ids are below this."""
    limits: InputLimits

    async def read(self, request: CompletionRequest, tier: Tier = Tier.LEECH) -> Asked:
        """The ids and the sampling of a request; its tier decides when a long one is read.

        Raises BadRequest for what the model cannot take, UnsupportedField for what it does not
        have, ContextTooLong and InputTooLong for a prompt that is too long, and Busy where too many
        long ones wait to be read, or one waited for too long.
        """
        if _chars(request) <= INLINE_CHARS:
            asked = self._read(request)
        else:
            asked = await self._read_aside(request, tier)
        if asked.sampling.grammar:
            # The tail compiles it again; what cannot be is refused before a prompt is computed.
            await compile_grammar(self.tokenizer, asked.sampling.grammar)
        return asked

    async def _read_aside(self, request: CompletionRequest, tier: Tier) -> Asked:
        with trio.move_on_after(READ_TIMEOUT):
            return await trio.to_thread.run_sync(
                self._read,
                request,
                abandon_on_cancel=True,  # type: ignore[call-arg, unused-ignore]
                limiter=_reading.of(tier),  # type: ignore[arg-type]  # trio takes what is like one
            )
        raise Busy("too many long prompts are being read")

    def _read(self, request: CompletionRequest) -> Asked:
        sampling = self._sampling(request)
        prompt = self._ids(request)
        if not prompt:
            raise BadRequest("the prompt has no tokens")
        self.limits.check(len(prompt))
        room = self.limits.context_size - len(prompt)
        return Asked(prompt, replace(sampling, max_tokens=min(sampling.max_tokens, room)))

    def _ids(self, request: CompletionRequest) -> list[int]:
        if request.messages:
            tools = request.tools if request.tool_choice != "none" else ()
            text = self.tokenizer.render_chat(
                [message.plain() for message in request.messages], tools=tools
            )
            self._check_chars(len(text))
            return self.tokenizer.encode(text, add_special_tokens=False)
        if request.fill is not None:
            self._check_chars(len(request.fill.prefix) + len(request.fill.suffix))
            return encode_fill(self.tokenizer, request.fill.prefix, request.fill.suffix)
        self._check_chars(len(request.prompt))
        return self.tokenizer.encode(request.prompt)

    def _check_chars(self, chars: int) -> None:
        """Refuse at once what is too long however it is read."""
        most = self.limits.context_size * self.tokenizer.longest_token
        if chars > most:
            raise ContextTooLong(
                f"the prompt is {chars} characters, and this node's context of "
                f"{self.limits.context_size} tokens holds {most} at most"
            )

    def _sampling(self, request: CompletionRequest) -> Sampling:
        sampling = request.sampling
        check_tools(request.tools)
        if request.fill is not None:
            more = {*sampling.stop_ids, *fill_stop_ids(self.tokenizer)}
            sampling = replace(sampling, stop_ids=tuple(sorted(more)))
        if request.tool_choice == "required":
            sampling = replace(sampling, grammar=self._forced(request))
        check_bias(sampling, self.vocab)
        return sampling

    def _forced(self, request: CompletionRequest) -> str:
        if request.sampling.grammar:
            raise UnsupportedField("response_format", "a call that is required has its own format")
        wanted = self.tokenizer.tool_format
        if wanted is None:
            raise UnsupportedField(
                "tool_choice", "how this model writes calls is not known, so none can be required"
            )
        markers = self.tokenizer.marker_ids
        return forced_call(wanted, request.tools, request.tool_name, marker_ids=markers)


def _chars(request: CompletionRequest) -> int:
    fill = request.fill
    gap = len(fill.prefix) + len(fill.suffix) if fill is not None else 0
    said = sum(len(message.content) for message in request.messages)
    return len(request.prompt) + gap + said + sum(len(str(tool)) for tool in request.tools)
