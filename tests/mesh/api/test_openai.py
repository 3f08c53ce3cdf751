"""OpenAI's own client, as its users write it, against a mesh of three processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI, BadRequestError, NotFoundError, OpenAI, Stream
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.mesh.api.nodes import MODEL, Nodes, openai_access

pytestmark = pytest.mark.mesh

GREEDY: Any = {"model": MODEL, "temperature": 0}
QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris."


def ask(client: OpenAI, question: str, **options: Any) -> ChatCompletion:
    """A whole answer to one question."""
    messages: Any = [{"role": "user", "content": question}]
    answer: ChatCompletion = client.chat.completions.create(messages=messages, **GREEDY | options)
    return answer


def stream(client: OpenAI, question: str, **options: Any) -> list[ChatCompletionChunk]:
    """The chunks of one."""
    chunks: Any = ask(client, question, stream=True, **options)
    assert isinstance(chunks, Stream)
    return list(chunks)


def said(chunks: list[ChatCompletionChunk]) -> str:
    """Their text."""
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def test_the_one_model_that_is_listed_is_the_one_to_ask(client: OpenAI) -> None:
    (model,) = client.models.list().data
    assert client.models.retrieve(model.id) == model
    answer = ask(client, QUESTION, model=model.id, max_tokens=12)
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == (ANSWER, "stop")
    assert answer.model == model.id == MODEL
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8


def test_a_stream_says_the_same_with_its_usage_last_or_not_at_all(client: OpenAI) -> None:
    whole = ask(client, QUESTION, max_tokens=4)
    plain = stream(client, QUESTION, max_tokens=4)
    counted = stream(client, QUESTION, max_tokens=4, stream_options={"include_usage": True})
    assert said(plain) == said(counted) == whole.choices[0].message.content
    assert [chunk.usage for chunk in plain] == [None] * len(plain)
    assert [chunk.usage for chunk in counted] == [None] * (len(counted) - 1) + [whole.usage]
    assert counted[-1].choices == []
    assert [chunk.choices[0].finish_reason for chunk in plain] == [None] * (len(plain) - 1) + [
        whole.choices[0].finish_reason
    ]


def test_asked_asynchronously_two_streams_go_on_side_by_side(nodes: Nodes) -> None:
    async def one(client: AsyncOpenAI, question: str) -> str:
        messages: Any = [{"role": "user", "content": question}]
        chunks: Any = await client.chat.completions.create(
            messages=messages, stream=True, max_tokens=6, **GREEDY
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

    async def both() -> list[str]:
        async with AsyncOpenAI(**openai_access(nodes)) as client:
            return list(await asyncio.gather(one(client, QUESTION), one(client, "Name a colour.")))

    first, second = asyncio.run(both())
    assert ANSWER.startswith(first)
    assert second not in ("", first)


def test_two_choices_are_two_answers_and_a_seed_makes_them_again(client: OpenAI) -> None:
    options: Any = {"n": 2, "temperature": 1.5, "seed": 3, "max_tokens": 5}
    first, again = (ask(client, "Name an animal.", **options) for _ in range(2))
    assert [choice.index for choice in first.choices] == [0, 1]
    texts = [choice.message.content for choice in first.choices]
    assert texts[0] != texts[1]
    assert texts == [choice.message.content for choice in again.choices]
    assert first.usage is not None
    assert first.usage.completion_tokens == 10


def test_logprobs_are_those_of_the_tokens_that_were_said(client: OpenAI) -> None:
    (choice,) = ask(client, QUESTION, max_tokens=3, logprobs=True, top_logprobs=2).choices
    assert choice.logprobs is not None
    tokens = choice.logprobs.content or []
    assert "".join(token.token for token in tokens) == choice.message.content
    assert b"".join(bytes(token.bytes or []) for token in tokens) == ANSWER.encode()[:14]
    for token in tokens:
        # The most probable one was taken.
        assert (token.token, token.logprob) == (
            token.top_logprobs[0].token,
            token.top_logprobs[0].logprob,
        )
        assert 0 >= token.logprob > token.top_logprobs[1].logprob


def test_a_conversation_may_be_in_parts_and_begin_with_a_system_message(client: OpenAI) -> None:
    messages: Any = [
        {"role": "system", "content": [{"type": "text", "text": "You answer in capitals."}]},
        {
            "role": "user",
            "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "2 + 2?"}],
        },
        {"role": "assistant", "content": None},
        {"role": "user", "content": "Well?"},
    ]
    plain: Any = [
        {"role": "developer", "content": "You answer in capitals."},
        {"role": "user", "content": "What is 2 + 2?"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "Well?"},
    ]
    answers = [
        client.chat.completions.create(messages=each, max_tokens=4, **GREEDY)
        for each in (messages, plain, plain[1:])
    ]
    texts = [answer.choices[0].message.content for answer in answers]
    assert texts[0] == texts[1] != texts[2]


def test_a_text_goes_on_for_each_prompt_with_its_logprobs(client: OpenAI) -> None:
    answer = client.completions.create(
        prompt=["1, 2, 3, 4,", "a b c d"], max_tokens=4, logprobs=1, **GREEDY
    )
    first, second = answer.choices
    assert (first.index, first.text, first.finish_reason) == (0, " 5, 6"[:4], "length")
    assert second.index == 1
    assert first.logprobs is not None
    assert "".join(first.logprobs.tokens or []) == first.text
    assert first.logprobs.text_offset == [0, 1, 2, 3]
    chunks = list(
        client.completions.create(prompt="1, 2, 3, 4,", max_tokens=4, stream=True, **GREEDY)
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == first.text


def test_what_cannot_be_answered_raises_what_its_users_catch(client: OpenAI) -> None:
    with pytest.raises(NotFoundError) as unknown:
        ask(client, QUESTION, model="gpt-4o")
    assert unknown.value.code == "unknown_model"
    with pytest.raises(BadRequestError) as too_long:
        ask(client, "word " * 600)
    assert too_long.value.code == "context_length_exceeded"
    with pytest.raises(APIStatusError) as too_large:
        ask(client, "word " * 400)
    assert (too_large.value.status_code, too_large.value.code) == (413, "input_too_long")
    with pytest.raises(BadRequestError) as refused:
        ask(client, QUESTION, temperature=3)
    assert refused.value.param == "temperature"
