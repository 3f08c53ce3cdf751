"""A request is a chat or a text, and nothing it holds is ignored."""

from __future__ import annotations

import pytest

from tessella.core.completions import (
    MAX_REQUEST_BYTES,
    ChatMessage,
    CompletionRequest,
    Fill,
    ToolCall,
)
from tessella.core.errors import BadRequest
from tessella.core.ids import ModelId
from tessella.core.sampling import Sampling

MODEL = ModelId("m")
CHAT = CompletionRequest(
    model=MODEL,
    messages=(ChatMessage("system", ""), ChatMessage("user", "汉字 🏳️‍🌈")),
    sampling=Sampling(max_tokens=3, stop=("x",)),
)


WITH_TOOLS = CompletionRequest(
    model=MODEL,
    messages=(
        ChatMessage("user", "how late is it?", name="ada"),
        ChatMessage("assistant", tool_calls=(ToolCall("call_1", "now", '{"zone": "UTC"}'),)),
        ChatMessage("tool", "12:00", tool_call_id="call_1"),
    ),
    tools=({"type": "function", "function": {"name": "now", "parameters": {}}},),
    tool_choice="required",
    tool_name="now",
    session="a session's name",
)
FILL = CompletionRequest(model=MODEL, fill=Fill("fn main() {", "}"))


@pytest.mark.parametrize(
    "request_", [CHAT, CompletionRequest(model=MODEL, prompt="once"), WITH_TOOLS, FILL]
)
def test_a_request_reads_back_what_was_sent(request_: CompletionRequest) -> None:
    assert CompletionRequest.decode(request_.encode()) == request_


@pytest.mark.parametrize(
    ("data", "culprit"),
    [
        (b"{", "not JSON"),
        (b"[]", "not an object"),
        (b"{}", "either messages or a prompt"),
        (b'{"prompt": "a", "messages": [{"role": "user", "content": "b"}]}', "either"),
        (b'{"prompt": 3}', "prompt must be a string"),
        (b'{"prompt": "a", "model": null}', "model must be a string"),
        (b'{"prompt": "a", "top_k": 3}', "unknown field 'top_k'"),
        (b'{"prompt": "a", "tools": [{}]}', "tools go with messages"),
        (b'{"prompt": "a", "tools": [3]}', r"tools\[0\] must be an object"),
        (b'{"prompt": "a", "tool_choice": "maybe"}', "tool_choice must be one of"),
        (b'{"prompt": "a", "tool_choice": "required"}', "there are no tools"),
        (b'{"prompt": "a", "tool_name": "now"}', "by name is a required one"),
        (b'{"prompt": "a", "session": "short"}', "16 to 128 characters"),
        (b'{"prompt": "a", "fill": {"prefix": "b"}}', "either"),
        (b'{"fill": {}}', "both empty"),
        (b'{"fill": {"middle": "b"}}', "a prefix and a suffix"),
        (b'{"fill": {"prefix": 3}}', "fill.prefix must be a string"),
        (b'{"messages": {}}', "messages must be an array"),
        (b'{"messages": ["hi"]}', r"messages\[0\] must have a role and a content"),
        (b'{"messages": [{"role": "user"}]}', r"messages\[0\]"),
        (b'{"messages": [{"role": "user", "content": null}]}', "content must be a string"),
        (b'{"messages": [{"role": "user", "content": "a", "mood": "b"}]}', r"messages\[0\]"),
        (
            b'{"messages": [{"role": "a", "content": "b", "tool_calls": [{"id": "c"}]}]}',
            r"messages\[0\].tool_calls\[0\] must have an id",
        ),
        (b'{"prompt": "a", "sampling": {"top_k": -1}}', "top_k"),
        (b'{"prompt": "a", "sampling": 3}', "not an object"),
    ],
)
def test_a_request_that_breaks_a_rule_is_refused_by_name(data: bytes, culprit: str) -> None:
    with pytest.raises(BadRequest, match=culprit):
        CompletionRequest.decode(data)


def test_a_request_longer_than_a_peer_takes_is_refused_before_it_is_sent() -> None:
    with pytest.raises(BadRequest, match="bytes, at most"):
        CompletionRequest(model=MODEL, prompt="x" * MAX_REQUEST_BYTES).encode()


def test_too_many_messages_are_refused() -> None:
    with pytest.raises(BadRequest, match="4097 messages"):
        CompletionRequest(model=MODEL, messages=(ChatMessage("user", "a"),) * 4097)
