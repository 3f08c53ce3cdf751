"""Telling a running node its range: over libp2p, or over HTTP where only that leads to it.

A push that is lost costs a heartbeat: the answer to that says the same.
"""

from __future__ import annotations

import json
import secrets

from musivum.clocks import Clock
from musivum.nodes.roster import Roster
from musivum.pages.mesh import assigned
from musivum.placing.node_calls import Http
from p2p.peers import Host
from tessella.core.addresses import PeerAddress
from tessella.core.call_rules import NONCE_BYTES
from tessella.core.calls import sign_call
from tessella.core.errors import OutOfTurn, PeerGone, RemoteFailure
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import ASSIGN, Accepted, Assign, Fail, Signed
from tessella.core.peers import PeerRow
from tessella.web.signed_posts import Caller, post_signed
from tessella.web.targets import resolve_target

CONNECT_TIMEOUT = 5.0
ANSWER_TIMEOUT = 5.0
HTTP_PATH = "/api/v1/update_assignment"


class Assigner:
    """Speaks with this musivum's key: nodes take a range from nobody else."""

    def __init__(
        self,
        host: Host,
        identity: Identity,
        roster: Roster,
        clock: Clock,
        http: Http,
    ) -> None:
        """`clock` gives seconds since 1970."""
        self._host = host
        self._identity = identity
        self._roster = roster
        self._clock = clock
        self._http = http

    async def push(self, peer_id: PeerId, layers: LayerRange) -> None:
        """Tell a node its range.

        Raises UnknownWorker, PeerGone where neither leads to it, BadAddress for a URL that may not
        be called, Refused or RemoteError where it does not speak as a node, and RemoteFailure with
        its no.
        """
        node = self._roster.node(peer_id)
        try:
            await self._over_libp2p(PeerAddress(peer_id, node.row.addrs), layers)
        except PeerGone:
            if not node.row.api_url:
                raise
            await self._over_http(node.row, layers)

    async def _over_libp2p(self, peer: PeerAddress, layers: LayerRange) -> None:
        await self._host.connect(peer, timeout=CONNECT_TIMEOUT)
        stream = await self._host.open_stream(peer.peer_id, ASSIGN, timeout=CONNECT_TIMEOUT)
        async with stream:
            await stream.send(self._signed(layers), timeout=ANSWER_TIMEOUT)
            answer = await stream.receive(timeout=ANSWER_TIMEOUT)
        if isinstance(answer, Fail):
            raise RemoteFailure(answer.code, answer.text, retry=answer.retry)
        if not isinstance(answer, Accepted):
            raise OutOfTurn(f"{type(answer).__name__} for an assignment")

    def _signed(self, layers: LayerRange) -> Signed:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return sign_call(Assign(layers), self._identity, self._clock(), nonce)

    async def _over_http(self, row: PeerRow, layers: LayerRange) -> None:
        url = row.api_url.rstrip("/") + HTTP_PATH
        target = await resolve_target(url, self._http.allow_private, public_https=True)
        body = json.dumps(assigned(row.model, layers).model_dump()).encode()
        caller = Caller(self._identity, row.peer_id, self._clock())
        await post_signed(self._http.client, target, HTTP_PATH, body, caller)
