"""What is said about work and its pay over musivum's HTTP routes: the same as over libp2p."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode, urlsafe_b64decode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tessella.core.addresses import parse_peer
from tessella.core.errors import BadAddress, BadFrame, OutOfTurn
from tessella.core.messages import (
    Accepted,
    AskAudit,
    AskCredits,
    AskGrant,
    AuditReport,
    AuditTask,
    Document,
    Granted,
    Message,
    SignedOrder,
)
from tessella.core.proofs import SignedProof

SETTLE_PATH = "/api/v1/work_done_batch"
GRANT_PATH, CREDITS_PATH = "/api/v1/session_grant", "/api/v1/credits"
TASK_PATH, REPORT_PATH = "/api/v1/audit_task", "/api/v1/audit_report"
BY_HTTP = AskGrant | AskCredits | AskAudit | AuditReport
"""What has a route; the rest goes over libp2p alone."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """A signed request: a GET with a query, or a POST with a body."""

    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Json | None = None


def asked_over_http(message: Message) -> Asked:
    """The request that says a message. Raises OutOfTurn for one that no route takes."""
    match message:
        case AskGrant():
            query = (
                ("model_id", message.model),
                ("max_tokens", str(message.max_tokens)),
                ("after", message.after.hex()),
                ("anonymous", "true" if message.anonymous else "false"),
            )
            return Asked(GRANT_PATH, query)
        case AskCredits():
            return Asked(CREDITS_PATH)
        case AskAudit():
            return Asked(TASK_PATH)
        case AuditReport():
            return Asked(REPORT_PATH, body=_report(message))
    raise OutOfTurn(f"no route takes {type(message).__name__}")


def answered_over_http(message: Message, answer: Any) -> Message:  # noqa: ANN401 - a stranger's JSON
    """The answer to a message, as libp2p has it. Raises BadFrame for what is none."""
    try:
        match message:
            case AskGrant():
                return _granted(answer)
            case AskAudit():
                task = answer["task"]
                return Accepted() if task is None else _task(task)
            case AuditReport():
                return Accepted()
        return Document(json.dumps(answer).encode())
    except (KeyError, TypeError, ValueError, AttributeError, BadAddress) as exc:
        kind = type(message).__name__
        raise BadFrame(f"musivum's answer to an {kind} is not one: {exc!r}") from exc


def proofs_body(proofs: Iterable[SignedProof]) -> Json:
    """Proofs to be settled."""
    return {
        "proofs": [
            {"payload": b64encode(each.payload).decode(), "signature": each.signature.hex()}
            for each in proofs
        ]
    }


def _report(said: AuditReport) -> Json:
    return {
        "audit_id": said.audit_id.hex(),
        "found": said.found,
        "tokens": said.tokens,
        "median": said.median,
        "worst": said.worst,
        "gain": said.gain,
        "reference": said.reference.hex(),
    }


def _granted(answer: Json) -> Granted:
    text = str(answer["ticket"])
    return Granted(
        ticket=urlsafe_b64decode(text + "=" * (-len(text) % 4)),
        signature=bytes.fromhex(answer["signature"]),
        addrs=_addrs(answer["p2p_addrs"]),
        api_url=str(answer["api_url"] or ""),
    )


def _task(task: Json) -> AuditTask:
    return AuditTask(
        audit_id=bytes.fromhex(task["audit_id"]),
        proof=_bytes(task["proof"]),
        proof_signature=bytes.fromhex(task["proof_signature"]),
        inputs=_order(task["inputs"]),
        inputs_addrs=tuple(map(str, task["inputs_addrs"])),
        outputs=_order(task["outputs"]),
        outputs_addrs=tuple(map(str, task["outputs_addrs"])),
    )


def _order(order: Json) -> SignedOrder:
    return SignedOrder(_bytes(order["order"]), bytes.fromhex(order["signature"]))


def _addrs(full: list[Any]) -> tuple[str, ...]:
    return tuple(addr for each in full for addr in parse_peer(str(each)).addrs)


def _bytes(text: Any) -> bytes:  # noqa: ANN401 - a stranger's JSON
    return b64decode(str(text), validate=True)
