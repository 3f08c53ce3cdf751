"""What a request comes to, for this model: the ids of its prompt, and how to sample the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import trio

from tessella.core.completions import ChatMessage, CompletionRequest
from tessella.core.errors import BadRequest, UnsupportedField
from tessella.core.sampling import Sampling
from tessella.engine.tokenizer import Tokenizer
from tessella.worker.limits import InputLimits

# A tokenizer reads about a million characters a second: below this the loop waits 20 ms at most,
# above it a thread is worth its while.
INLINE_CHARS = 16 * 1024


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the chain computes it."""

    prompt: list[int]
    sampling: Sampling
    """`max_tokens` is what the context has room for, at most."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """Reads requests for one model."""

    tokenizer: Tokenizer
    limits: InputLimits

    async def read(self, request: CompletionRequest) -> Asked:
        """The ids and the sampling of a request.

        Raises BadRequest for what the model cannot take, UnsupportedField for what it does not
        have, ContextTooLong and InputTooLong for a prompt that is too long.
        """
        if _chars(request) <= INLINE_CHARS and not _has_grammar(request):
            return self._read(request)
        return await trio.to_thread.run_sync(self._read, request)

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
            messages = list(map(_plain, request.messages))
            return (
                self.tokenizer.encode_chat(messages, tools=tools)
                if tools
                else self.tokenizer.encode_chat(messages)
            )
        if request.fill is not None:
            from tessella.engine.fill import encode_fill

            return encode_fill(self.tokenizer, request.fill.prefix, request.fill.suffix)
        return self.tokenizer.encode(request.prompt)

    def _sampling(self, request: CompletionRequest) -> Sampling:
        sampling = request.sampling
        if request.fill is not None:
            from tessella.engine.fill import fill_stop_ids

            more = {*sampling.stop_ids, *fill_stop_ids(self.tokenizer)}
            sampling = replace(sampling, stop_ids=tuple(sorted(more)))
        if request.tool_choice == "required":
            sampling = replace(sampling, grammar=self._forced(request))
        if sampling.grammar:
            from tessella.engine.grammar import check_grammar

            check_grammar(self.tokenizer, sampling.grammar)
        return sampling

    def _forced(self, request: CompletionRequest) -> str:
        if request.sampling.grammar:
            raise UnsupportedField("response_format", "a call that is required has its own format")
        wanted = self.tokenizer.tool_format
        if wanted is None:
            raise UnsupportedField("tools", "the chat template of this model has no place for them")
        from tessella.core.tool_calls import forced_call

        return forced_call(wanted, request.tools, request.tool_name)


def _has_grammar(request: CompletionRequest) -> bool:
    return bool(request.sampling.grammar) or request.tool_choice == "required"


def _chars(request: CompletionRequest) -> int:
    fill = request.fill
    gap = len(fill.prefix) + len(fill.suffix) if fill is not None else 0
    said = sum(len(message.content) for message in request.messages)
    return len(request.prompt) + gap + said + sum(len(str(tool)) for tool in request.tools)


def _plain(message: ChatMessage) -> Mapping[str, object]:
    """A message as chat templates are given it."""
    plain: dict[str, object] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        plain["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in message.tool_calls
        ]
    more = {"name": message.name, "tool_call_id": message.tool_call_id}
    return plain | {name: text for name, text in more.items() if text}
