"""Errors before and after the first token, and sessions that end with their client."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio
from starlette.types import Message
from trio.testing import MockClock, wait_all_tasks_blocked

from tessella.core.completions import CompletionRequest
from tessella.core.errors import (
    ContextTooLong,
    InputTooLong,
    LocalError,
    ModelUnavailable,
    PeerSilent,
    RemoteFailure,
    TessellaError,
    TooManySessions,
)
from tessella.core.ids import SessionId
from tessella.core.messages import Cancel, Progress
from tessella.worker.api.delivery import KEEP_ALIVE_SECONDS, server_timing, usage
from tessella.worker.api.rooms import Say
from tessella.worker.api.voices import Voice
from tests.worker.api.conftest import (
    MODEL,
    PATHS,
    Node,
    Script,
    Switch,
    begun,
    delta,
    done,
    minimal,
)

PATH = PATHS[0]
PROGRESS = Progress(SessionId(bytes(16)), 0, 1, 1)


def failing(error: Exception, *before: str) -> Script:
    async def script(request: CompletionRequest, say: Say) -> None:
        if before:
            await say(begun())
        for each in before:
            await say(delta(each))
        raise error

    return script


ERRORS: list[tuple[TessellaError, int, dict[str, Any]]] = [
    (
        InputTooLong("the prompt is 300 tokens, this node takes 200 (measured)"),
        413,
        {"code": "input_too_long", "type": "invalid_request_error"},
    ),
    (
        ContextTooLong("the prompt is 300 tokens, this node's context is 256"),
        400,
        {"code": "context_length_exceeded", "type": "invalid_request_error"},
    ),
    (
        ModelUnavailable("loading", 2.1, state="PendingLoad", progress=0.5),
        503,
        {
            "code": "model_unavailable",
            "type": "unavailable_error",
            "retry_after": 3,
            "details": {"state": "PendingLoad", "progress": 0.5},
        },
    ),
    (
        TooManySessions("full"),
        503,
        {"code": "too_many_sessions", "type": "unavailable_error", "retry_after": 1},
    ),
    (PeerSilent("gone"), 502, {"code": "peer_silent", "type": "server_error"}),
    (
        RemoteFailure("not_finite", "NaN", retry=False),
        502,
        {"code": "not_finite", "type": "server_error"},
    ),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "status", "told"), ERRORS, ids=lambda each: str(each)[:20])
async def test_an_error_before_the_first_token_is_a_status(
    node: Node,
    client: httpx.AsyncClient,
    stream: bool,
    error: TessellaError,
    status: int,
    told: dict[str, Any],
) -> None:
    node.script = failing(error)
    answer = await client.post(PATH, json=minimal(PATH, stream=stream))
    assert answer.status_code == status
    assert answer.json() == {"error": {"message": str(error), **told}}
    assert answer.headers["content-type"] == "application/json"
    assert node.answering == 0


@pytest.mark.parametrize(("error", "status", "told"), ERRORS, ids=lambda each: str(each)[:20])
async def test_an_error_after_the_first_token_is_an_event_and_no_done(
    node: Node, client: httpx.AsyncClient, error: TessellaError, status: int, told: dict[str, Any]
) -> None:
    node.script = failing(error, "Hel", "lo")
    answer = await client.post(PATH, json=minimal(PATH, stream=True))
    assert answer.status_code == 200
    _, hel, lo, last, nothing = answer.text.split("\n\n")
    assert ('"Hel"' in hel, '"lo"' in lo, nothing) == (True, True, "")
    assert json.loads(last.removeprefix("data: ")) == {"error": {"message": str(error), **told}}


@pytest.mark.parametrize("error", [KeyError("secret"), LocalError("secret")])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_bug_is_told_as_nothing_but_a_bug(
    node: Node,
    client: httpx.AsyncClient,
    error: Exception,
    stream: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    node.script = failing(error)
    with caplog.at_level(logging.CRITICAL):
        answer = await client.post(PATH, json=minimal(PATH, stream=stream))
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert "secret" not in answer.text


async def test_a_bug_in_the_midst_of_a_stream_is_told_and_goes_on_to_the_log(
    node: Node, switch: Switch
) -> None:
    node.script = failing(KeyError("secret"), "Hel")
    switch.node = node
    call = Call(switch, minimal(PATH, stream=True))
    with pytest.raises(BaseExceptionGroup) as caught:
        await call.run()
    assert caught.group_contains(KeyError, match="secret")
    assert call.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    assert b"internal_error" in call.body
    assert b"secret" not in call.body
    assert b"[DONE]" not in call.body


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kept", ["begun", "done"])
async def test_an_answer_without_its_beginning_or_end_is_our_bug(
    node: Node, client: httpx.AsyncClient, stream: bool, kept: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(request: CompletionRequest, say: Say) -> None:
        if kept == "begun":
            await say(begun())
        else:
            await say(delta("x"))
            await say(done(1))

    node.script = script
    with caplog.at_level(logging.CRITICAL):
        answer = await client.post(PATH, json=minimal(PATH, stream=stream))
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"


async def test_what_is_no_part_of_an_answer_is_our_bug(
    node: Node, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(request: CompletionRequest, say: Say) -> None:
        await say(Cancel(SessionId(bytes(16)), 0))

    node.script = script
    with caplog.at_level(logging.CRITICAL):
        assert (await client.post(PATH, json=minimal(PATH))).status_code == 500


@pytest.mark.parametrize("stream", [False, True])
async def test_one_that_fails_takes_the_others_with_it(
    node: Node, client: httpx.AsyncClient, stream: bool, autojump_clock: MockClock
) -> None:
    async def script(request: CompletionRequest, say: Say) -> None:
        await say(begun())
        if request.sampling.seed == 6:
            await trio.sleep(1)
            raise TooManySessions("full")
        await trio.sleep_forever()

    node.script = script
    answer = await client.post(PATH, json=minimal(PATH, stream=stream, n=3, seed=5))
    assert answer.json()["error"]["code"] == "too_many_sessions"
    assert (len(node.asked), node.answering) == (3, 0)


class Call:
    """One call as a server makes it, whose client can leave and need not read."""

    def __init__(self, switch: Switch, body: dict[str, Any], path: str = PATH) -> None:
        self.left = trio.Event()
        self.reads = trio.Event()
        self.reads.set()
        self.sent: list[Message] = []
        self._app = switch.app
        self._body: bytes | None = json.dumps(body).encode()
        self._path = path

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.sent)

    async def run(self) -> None:
        scope = {
            "type": "http",
            "method": "POST",
            "path": self._path,
            "raw_path": self._path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1),
        }
        await self._app(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.reads.wait()
        self.sent.append(message)


@asynccontextmanager
async def calling(node: Node, switch: Switch, **more: Any) -> AsyncIterator[Call]:
    """A call that has to be over soon after the block; by the clock of the test."""
    switch.node = node
    call = Call(switch, minimal(PATH, **more))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call.run)
            yield call


def until(moment: str) -> Script:
    async def script(request: CompletionRequest, say: Say) -> None:
        if moment != "queue":
            await say(begun())
        if moment == "decode":
            await say(delta("Hel"))
        await trio.sleep_forever()

    return script


@pytest.mark.parametrize("moment", ["queue", "prefill", "decode"])
@pytest.mark.parametrize(
    "more", [{}, {"stream": True}, {"n": 2}, {"stream": True, "n": 2}], ids=str
)
async def test_a_client_that_leaves_ends_its_sessions_at_once(
    node: Node,
    switch: Switch,
    moment: str,
    more: dict[str, Any],
    autojump_clock: MockClock,
) -> None:
    node.script = until(moment)
    async with calling(node, switch, **more) as call:
        await trio.sleep(1)
        assert node.answering == more.get("n", 1)
        assert bool(call.sent) == (moment == "decode" and "stream" in more)
        call.left.set()
        await wait_all_tasks_blocked()
        assert node.answering == 0
    assert not any(each.get("more_body") is False for each in call.sent)


async def test_a_client_that_does_not_read_holds_the_session_back_and_no_more(
    node: Node, switch: Switch, autojump_clock: MockClock
) -> None:
    said: list[float] = []

    async def script(request: CompletionRequest, say: Say) -> None:
        await say(begun())
        for _ in range(1000):
            await say(delta("x"))
            said.append(trio.current_time())
        await say(done(1000))

    node.script = script
    async with calling(node, switch, stream=True) as call:
        call.reads = trio.Event()
        await trio.sleep(10)
        assert 10 < len(said) < 100
        call.reads.set()
    assert len(said) == 1000
    assert call.body.count(b'"content":"x"') == 1000
    assert call.body.endswith(b"data: [DONE]\n\n")


async def test_progress_never_waits_for_a_client(
    node: Node, switch: Switch, autojump_clock: MockClock
) -> None:
    async def script(request: CompletionRequest, say: Say) -> None:
        await say(begun())
        await say(delta("x"))
        with trio.fail_after(0.1):
            for _ in range(1000):
                await say(PROGRESS)
        await say(done(1))

    node.script = script
    async with calling(node, switch, stream=True) as call:
        call.reads = trio.Event()
        await trio.sleep(10)
        call.reads.set()
    assert call.body.endswith(b"data: [DONE]\n\n")


async def test_a_stream_that_is_silent_says_that_it_lives(
    node: Node, switch: Switch, autojump_clock: MockClock
) -> None:
    async def script(request: CompletionRequest, say: Say) -> None:
        await say(begun())
        for part in ("a", "b"):
            for _ in range(12):
                await trio.sleep(1)
                await say(PROGRESS)
            await say(delta(part))
        await say(done(2))

    node.script = script
    async with calling(node, switch, stream=True) as call:
        # Until the first token the status is open: an error can still be one.
        await trio.sleep(11.5)
        assert call.sent == []
        await trio.sleep(1)
        assert call.sent
    wanted = int(12 // KEEP_ALIVE_SECONDS)
    assert call.body.count(b": progress\n\n") == wanted
    before, _, after = call.body.partition(b'"content":"a"')
    assert b"progress" not in before
    assert b'"content":"b"' in after.rpartition(b": progress")[2]
    (start,) = [each for each in call.sent if each["type"] == "http.response.start"]
    assert dict(start["headers"])[b"server-timing"] == b"first;dur=12000.0"


def voice(number: int, tokens: int, cached: int) -> Voice:
    found = Voice(None)
    found.begin(begun(number, cached))
    found.end(done(tokens))
    return found


def test_a_prompt_is_counted_once_for_all_its_answers() -> None:
    voices = [voice(0, 1, 5), voice(1, 2, 0), voice(2, 3, 1), voice(3, 4, 0)]
    assert usage(voices, 2) == {
        "prompt_tokens": 14,
        "completion_tokens": 10,
        "total_tokens": 24,
        "prompt_tokens_details": {"cached_tokens": 6},
    }


def test_time_is_told_in_milliseconds() -> None:
    assert server_timing([done(1)]) == (
        "queue;dur=100.0, prefill;dur=200.0, decode;dur=1000.0, hops;dur=50.0"
    )


async def test_many_answers_leave_the_loop_to_others(
    node: Node, client: httpx.AsyncClient, autojump_clock: MockClock
) -> None:
    async def script(request: CompletionRequest, say: Say) -> None:
        await say(begun())
        for _ in range(20):
            await trio.sleep(0.5)
            await say(delta("x"))
        await say(done(20))

    async def ask() -> None:
        answers.append((await client.post(PATH, json=minimal(PATH))).status_code)

    node.script = script
    answers: list[int] = []
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(ask)
        await trio.sleep(5)
        began = trio.current_time()
        assert (await client.get("/status")).status_code == 200
        assert trio.current_time() - began < 0.1
    assert answers == [200] * 10
    assert {request.model for request in node.asked} == {MODEL}
