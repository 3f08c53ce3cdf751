"""The OpenAPI document of a node against a live one, by schemathesis: what is generated from it
breaks nothing, and every answer is one that it names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
import requests
import requests.auth
import schemathesis
from schemathesis import Case
from schemathesis.core import NOT_SET
from schemathesis.hooks import HookContext

from tessella.core.identity import Identity
from tessella.core.signed_request import Request
from tessella.core.ticket_header import TICKET
from tessella.worker.api.operate import PATH as OPERATE
from tessella.worker.api.orders import PATH as ORDERS
from tessella.worker.http_hops.asks import FORWARD_PATH, TOKEN_PATH
from tests.contracts import SEEN, accept, fuzzed, report, schema_of
from tests.worker.api.conftest import PATHS, minimal
from tests.worker.api.live_node import (
    MODEL,
    MUSIVUM,
    OWNER,
    SHAPE,
    STRANGERS,
    LiveNode,
    a_live_node,
)

pytestmark = [pytest.mark.contract, pytest.mark.timeout(600)]

STREAMS = (FORWARD_PATH, TOKEN_PATH + "{request_id}")
ASKED: Counter[str] = Counter()
"""Valid bodies, by path."""
CONTRADICTORY = (
    "logit_bias",
    "max_completion_tokens",
    "model",
    "response_format",
    "session",
    "tool_choice",
    "tools",
    "top_logprobs",
)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    with a_live_node(tmp_path_factory.mktemp("toy")) as node:
        yield node


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
    """Every second case that is valid is also one that can be honoured: no schema says which."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    ASKED[case.path] += 1
    if case.path in STREAMS:
        # Nothing is said here: it would only be waited for.
        case.query |= {"wait": "0"} if "wait" in case.query else {}
        if ASKED[case.path] % 2:
            case.query["number"] = "1"
            case.body = case.body if case.query["act"] in ("write", "finish") else NOT_SET
    elif case.path == OPERATE and isinstance(case.body, dict):
        # It would be the last that the node does.
        case.body |= {"order": "resume"} if case.body.get("order") == "drain" else {}
    elif ASKED[case.path] % 2 and isinstance(case.body, dict):
        if case.path in PATHS:
            # Whoever brings a ticket that nobody signed is refused, whatever it asks.
            case.headers.pop(TICKET, None)
            kept = {name: value for name, value in case.body.items() if name not in CONTRADICTORY}
            case.body = minimal(case.path, **kept | minimal(case.path))
        elif case.path == ORDERS:
            start = ASKED[case.path] % SHAPE.layers
            case.body = {"model_repo": MODEL, "layer_ranges": [[start, SHAPE.layers]]}


class Signing(requests.auth.AuthBase):
    """Signs what goes out, whatever that is. A stream is opened before something is done to it."""

    def __init__(self, live: LiveNode, *callers: Identity) -> None:
        self._live = live
        self._callers = callers
        self._calls = 0

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        caller = self._callers[self._calls % len(self._callers)]
        self._calls += 1
        parts = urlsplit(request.url or "")
        query = tuple(parse_qsl(parts.query, keep_blank_values=True))
        content = request.body or b""
        body = content.encode() if isinstance(content, str) else content
        path = unquote(parts.path)
        stream = dict(query).get("stream", "")
        if ("number", "1") in query:
            self._live.post(caller, path, stream=stream, act="open")
        asked = Request(request.method or "", path, query, body, OWNER.peer_id)
        request.headers.update(self._live.signed(caller, asked))
        return request


def test_anybody_is_answered_as_documented(live: LiveNode) -> None:
    schema = schema_of(live.url)
    # Lengths that contradict each other, a tool of no name, another model, no room for four.
    accept(schema, "400", "404", "413", "503")
    report(fuzzed(schema))
    # Each completion route was answered, and refused.
    for path in PATHS:
        assert SEEN[f"POST {path} 200"] > 0
        assert SEEN[f"POST {path} 400"] > 0
    for path in (*STREAMS, OPERATE, ORDERS):
        assert SEEN[f"POST {path} 401"] > 0
        assert SEEN[f"POST {path} 200"] == 0


def test_nodes_are_answered_as_documented(live: LiveNode) -> None:
    schema = schema_of(live.url, *STREAMS, unsigned=True)
    schema.auth.set_from_requests(Signing(live, *STRANGERS))
    # Out of turn, or a body where none belongs.
    accept(schema, "400", "503")
    report(fuzzed(schema))
    assert SEEN[f"POST {FORWARD_PATH} 200"] > 0


def test_the_owner_is_answered_as_documented(live: LiveNode) -> None:
    schema = schema_of(live.url, OPERATE, unsigned=True)
    schema.auth.set_from_requests(Signing(live, OWNER))
    accept(schema, "400")
    report(fuzzed(schema))
    assert SEEN[f"POST {OPERATE} 200"] > 0
    live.post(OWNER, OPERATE, b'{"order": "resume"}').raise_for_status()
    live.until_it_serves()


def test_musivum_is_answered_as_documented(live: LiveNode) -> None:
    schema = schema_of(live.url, ORDERS, unsigned=True)
    schema.auth.set_from_requests(Signing(live, MUSIVUM))
    accept(schema, "400")
    report(fuzzed(schema))
    assert SEEN[f"POST {ORDERS} 200"] > 0


def test_an_answer_that_is_not_documented_would_be_found(live: LiveNode) -> None:
    schema = schema_of(live.url, "/v1/models/{model}")
    del schema.raw_schema["paths"]["/v1/models/{model}"]["get"]["responses"]["404"]
    assert "Received: 404" in " ".join(fuzzed(schema))
