"""musivum by its URL: who it is, and a node's calls over HTTP where libp2p does not lead there.

The key that the URL answered with is pinned: every call is made for that peer, and over libp2p it
has to prove it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn
from urllib.parse import urlencode

import httpx

from tessella.core.addresses import PeerAddress, parse_peer
from tessella.core.errors import BadAddress, BadFrame, BadSignature, OutOfTurn
from tessella.core.identity import Identity, public_key_of
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    Accepted,
    Announce,
    Assigned,
    Deregister,
    Message,
    Ready,
    Register,
    ReportFailure,
)
from tessella.core.peers import MAX_ROWS, PeerRow
from tessella.core.proofs import SignedProof
from tessella.core.settlement import Outcome, decode_outcomes
from tessella.core.shape_json import decode_shape
from tessella.core.tensors import MIB
from tessella.web.client import CallLimits, get_json
from tessella.web.signed_posts import Caller, get_signed, post_signed
from tessella.web.targets import resolve_target
from tessella.worker.musivum_ledger import (
    SETTLE_PATH,
    answered_over_http,
    asked_over_http,
    proofs_body,
)

MAX_MULTIADDRS = 16
PEERS_LIMITS = CallLimits(answer=16 * MIB)

Json = dict[str, Any]


async def find_musivum(client: httpx.AsyncClient, url: str) -> PeerAddress:
    """Who answers at a URL that the operator named, and where that is over libp2p.

    It may be in a private network, and in a public one has to be https: what is read there is
    the key that is trusted from then on. Raises BadAddress, PeerGone, and BadFrame or BadSignature
    for an answer that names no peer.
    """
    target = await resolve_target(f"{url.rstrip('/')}/p2p_id", True, public_https=True)
    said = await get_json(client, target)
    if not isinstance(said, dict) or not isinstance(said.get("multiaddrs"), list):
        raise BadFrame(f"{url} is no musivum: /p2p_id names no peer")
    peer_id = PeerId(str(said.get("peer_id")))
    try:
        public_key_of(peer_id)
        named = [parse_peer(str(addr)) for addr in said["multiaddrs"][:MAX_MULTIADDRS]]
    except (BadAddress, BadSignature) as exc:
        raise BadFrame(f"{url} is no musivum: /p2p_id: {exc}") from exc
    if any(peer.peer_id != peer_id for peer in named):
        raise BadFrame(f"{url} is no musivum: /p2p_id names two peers")
    return PeerAddress(peer_id, tuple(addr for peer in named for addr in peer.addrs))


@dataclass(slots=True, kw_only=True)
class HttpMusivum:
    """Signed calls to a musivum's HTTP routes. The client is the caller's, to close."""

    client: httpx.AsyncClient
    url: str
    peer_id: PeerId
    identity: Identity
    clock: Callable[[], float]
    """Seconds since 1970, that calls are signed with."""
    heartbeat: float = 0.0
    """What a registration was told; only that is."""

    async def call(self, message: Message) -> Assigned | Accepted:
        """Say a message. Raises RemoteFailure with musivum's code, PeerGone, BadFrame."""
        name, body = _route_of(message, self.identity)
        answer = await self._post(f"/{name}", body)
        try:
            return self._read(answer)
        except (KeyError, TypeError, ValueError) as exc:
            raise BadFrame(f"musivum's answer to /{name} is not one: {exc!r}") from exc

    async def peers(self, model: ModelId) -> list[PeerRow]:
        """The nodes of a model. Raises as `call`."""
        query = urlencode({"model_id": model})
        target = await resolve_target(f"{self._base}/peers?{query}", True, public_https=True)
        rows = await get_json(self.client, target, limits=PEERS_LIMITS)
        if not isinstance(rows, list) or len(rows) > MAX_ROWS:
            raise BadFrame(f"/peers is no array of at most {MAX_ROWS} rows")
        try:
            return [_row(row) for row in rows]
        except (KeyError, TypeError, ValueError, BadAddress) as exc:
            raise BadFrame(f"a row of /peers is not one: {exc!r}") from exc

    async def ledger(self, message: Message) -> Message:
        """Say a message about work and its pay. Raises as `call`, OutOfTurn for one of no route."""
        asked = asked_over_http(message)
        if asked.body is not None:
            return answered_over_http(message, await self._post(asked.path, asked.body))
        query = f"?{urlencode(asked.query)}" if asked.query else ""
        target = await resolve_target(self._base + asked.path + query, True, public_https=True)
        caller = Caller(self.identity, self.peer_id, self.clock())
        path = target.url.path.partition("?")[0]
        answer = await get_signed(self.client, target, path, asked.query, caller)
        return answered_over_http(message, answer)

    async def settle(self, proofs: Sequence[SignedProof]) -> list[Outcome]:
        """What became of each proof. Raises as `call`."""
        answer = await self._post(SETTLE_PATH, proofs_body(proofs))
        if not isinstance(answer, dict):
            raise BadFrame(f"musivum's answer to {SETTLE_PATH} is no object")
        return decode_outcomes(json.dumps(answer.get("outcomes")).encode())

    def _read(self, answer: Any) -> Assigned | Accepted:  # noqa: ANN401 - a stranger's JSON
        """What musivum said: another range to hold, or nothing."""
        self.heartbeat = float(answer.get("heartbeat_seconds", self.heartbeat))
        assignment = answer["assignment"]
        if assignment is None:
            return Accepted()
        (span,) = assignment["layer_ranges"]
        return Assigned(_range(span), self.heartbeat)

    @property
    def _base(self) -> str:
        return self.url.rstrip("/")

    async def _post(self, path: str, body: Json) -> object:
        target = await resolve_target(self._base + path, True, public_https=True)
        data = json.dumps(body).encode()
        caller = Caller(self.identity, self.peer_id, self.clock())
        return await post_signed(self.client, target, target.url.path, data, caller)


def _route_of(message: Message, identity: Identity) -> tuple[str, Json]:
    """The route of a message, and its body."""
    match message:
        case Register():
            return "register", _registration(message, identity)
        case Ready():
            return "ready", {"layers": _span(message.layers)}
        case Announce():
            return "announce", asdict(message)
        case Deregister():
            return "deregister", {}
        case ReportFailure():
            return "report_failure", asdict(message)
    _never(message)


def _never(message: Message) -> NoReturn:
    raise OutOfTurn(f"no route takes {type(message).__name__}")


def _registration(said: Register, identity: Identity) -> Json:
    shape = json.loads(said.shape)
    body = {
        "peer_id": identity.peer_id,
        "public_key": public_key_of(identity.peer_id).hex(),
        "p2p_addrs": list(said.addrs),
        "api_addr": said.api_url,
        "vram_mb": said.claim_mb,
        "device": said.device,
        "dtype": said.dtype,
        "kv_cache_type": said.kv,
        "context_size": said.context,
        "parallel_slots": said.slots,
        "model_id": said.model,
        "total_layers": decode_shape(said.shape).layers,
        "contract": said.contract,
        "shape": shape,
        "weights": said.weights,
        "canary": said.canary,
    }
    return body if said.wanted is None else {**body, "layers": _span(said.wanted)}


def _span(layers: LayerRange) -> list[int]:
    return [layers.start, layers.stop]


def _range(span: Any) -> LayerRange:  # noqa: ANN401 - a stranger's JSON
    start, stop = span
    return LayerRange(int(start), int(stop))


def _row(said: Json) -> PeerRow:
    (span,) = said["layer_ranges"]
    return PeerRow(
        peer_id=PeerId(str(said["peer_id"])),
        model=ModelId(str(said["model_id"])),
        contract=str(said["contract"]),
        layers=_range(span),
        total_layers=int(said["total_layers"]),
        status=str(said["status"]),
        addrs=tuple(addr for each in said["p2p_addrs"] for addr in parse_peer(str(each)).addrs),
        device=str(said["device"]),
        dtype=str(said["dtype"]),
        queue_depth=int(said["queue_depth"]),
        step_ms=float(said["step_ms"]),
        api_url=str(said["http_api_url"] or ""),
        canary=said["canary"] is True,
    )
