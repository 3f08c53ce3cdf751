"""The OpenAPI document against the server, by schemathesis: what is generated from it may break
nothing, and every answer is one that it names."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
import requests
import requests.auth
import schemathesis
from schemathesis import Case
from schemathesis.hooks import HookContext

from musivum.testing_http import registration_body
from tessella.core.signed_request import Request
from tests.contracts import accept, fuzzed, report, schema_of

pytestmark = [pytest.mark.contract, pytest.mark.timeout(600)]

SIGNED = (
    "/register",
    "/announce",
    "/ready",
    "/deregister",
    "/report_failure",
    "/api/v1/session_grant",
    "/api/v1/credits",
    "/api/v1/audit_task",
    "/api/v1/audit_report",
)
OPERATORS = (
    "/rebalance",
    "/reputation",
    "/weights/manifest",
    "/ledger",
    "/ledger/snapshot",
    "/credits",
    "/slash",
    "/appeal",
)


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
    """What is valid is said by a node that could say it: generated keys are nobody's."""
    is_valid = case.meta is not None and case.meta.generation.mode.is_positive
    if NODE.live is not None and is_valid and isinstance(case.body, dict):
        case.body = NODE.says(case.path, case.body)


class SayingNode:
    """Puts into bodies what cannot be guessed: the caller's key, its place, and what it holds."""

    def __init__(self) -> None:
        self.live: Any = None
        self._bodies = 0
        self._here: str | None = None

    def says(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The body with true values: always for whose it is, else half of the time."""
        self._bodies += 1
        caller = self.live.caller()
        mine = registration_body(caller.peer_id, caller.addrs)
        if path not in ("/register", "/deregister") and self._here != caller.peer_id:
            self._register(mine)
        # One that registers for too little is gone as well.
        self._here = None if path in ("/register", "/deregister") else caller.peer_id
        if path == "/register":
            true = ("peer_id", "public_key") if self._bodies % 2 else tuple(mine)
            kept = {key: mine[key] for key in true if key != "vram_mb"}
            return {**body, **kept, "layers": None}
        if path == "/ready" and self._bodies % 2:
            return {"layers": self._held(caller.peer_id)}
        return body

    def _register(self, body: dict[str, Any]) -> None:
        answer = requests.post(
            f"{self.live.url}/register", json=body, auth=Signing(self.live), timeout=5
        )
        answer.raise_for_status()

    def _held(self, peer_id: str) -> list[int]:
        rows = requests.get(f"{self.live.url}/peers", timeout=5).json()
        layers: list[int] = next(
            row["layer_ranges"][0] for row in rows if row["peer_id"] == peer_id
        )
        return layers


NODE = SayingNode()


class Signing(requests.auth.AuthBase):
    """Signs what goes out, whatever that is, as a node of the mesh."""

    def __init__(self, live: Any) -> None:
        self._live = live

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        caller = self._live.next_caller()
        parts = urlsplit(request.url or "")
        query = tuple(parse_qsl(parts.query, keep_blank_values=True))
        body = request.body or b""
        content = body.encode() if isinstance(body, str) else body
        asked = Request(
            request.method or "", unquote(parts.path), query, content, self._live.audience
        )
        request.headers.update(self._live.sign(caller, asked))
        return request


def test_anybody_is_answered_as_documented(live: Any) -> None:
    report(fuzzed(schema_of(live.url)))


def test_nodes_are_answered_as_documented(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NODE, "live", live)
    schema = schema_of(live.url, *SIGNED, unsigned=True)
    schema.auth.set_from_requests(Signing(live))
    # An address that leads nowhere, or a range that ends before it starts.
    accept(schema, "400")
    report(fuzzed(schema))


def test_the_operator_is_answered_as_documented(live: Any) -> None:
    schema = schema_of(live.url, *OPERATORS)
    schema.config.update(headers={"Authorization": f"Bearer {live.token}"})
    accept(schema, "400")
    report(fuzzed(schema))


def test_an_answer_that_is_not_documented_would_be_found(live: Any) -> None:
    schema = schema_of(live.url, "/api/v1/assignment")
    del schema.raw_schema["paths"]["/api/v1/assignment"]["get"]["responses"]["404"]
    assert "Received: 404" in " ".join(fuzzed(schema))
