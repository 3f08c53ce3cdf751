"""Tokens on their way back: what the entry waits for, and who may bring it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from p2p.pool import IDLE_SECONDS
from p2p.streams import FrameStream
from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadSignature, BadTicket, OutOfTurn, PeerGone, RemoteFailure
from tessella.core.identity import PURPOSE_TOKEN_GRANT, Identity, check_signature
from tessella.core.ids import PeerId, SessionId
from tessella.core.messages import TOKENS, Fail, Open, Token, TokenGrant, TokenOpen, decode, seal
from tessella.worker.directory import Directory
from tessella.worker.http_hops.asks import TOKEN_PATH
from tessella.worker.http_hops.dialling import Route
from tessella.worker.nurseries import open_conversation

# Decoding is in lockstep, so one token is under way; a peer that sends more is not ours.
MAX_WAITING_TOKENS = 64
# How long a tail may take from the grant to its first frame: a long prefill on a slow mesh.
GRANT_SECONDS = 3600.0
# Between sessions. Whoever pools a stream ends it sooner, so this one has no owner.
BETWEEN_TIMEOUT = 2 * IDLE_SECONDS


def check_grant(opened: Open, entry: PeerId) -> None:
    """Whether a session is the one that its entry opened: who passes it on names no other epoch.

    `entry` is the ticket's. Raises BadTicket where the session begins elsewhere, BadSignature for a
    grant that the entry did not sign, BadFrame for what is none, OutOfTurn for one of another
    session.
    """
    if opened.chain[0].peer_id != entry:
        raise BadTicket(
            f"a session that begins at {opened.chain[0].peer_id}, the ticket's does not"
        )
    signature = opened.grant_signature
    payload = check_signature(entry, PURPOSE_TOKEN_GRANT, opened.grant, signature)
    grant, tail = decode(payload), opened.chain[-1].peer_id
    if not isinstance(grant, TokenGrant):
        raise BadSignature("a token grant that is none")
    if (grant.session_id, grant.epoch, grant.tail) != (opened.session_id, opened.epoch, tail):
        raise OutOfTurn("a session with the token grant of another")


class Inbox:
    """The tokens of one session, in order, however they come."""

    def __init__(self, session_id: SessionId, epoch: int, tail: PeerId) -> None:
        self.key = (session_id, epoch)
        self.tail = tail
        self.granted = True
        """Whether a token stream may still claim it: once."""
        self.closed = trio.Event()
        self._position = -1
        self._send, self._receive = trio.open_memory_channel[Token](MAX_WAITING_TOKENS)

    async def deliver(self, token: Token) -> None:
        """Take one token. Raises OutOfTurn for a foreign, repeated or unasked one."""
        if (token.session_id, token.epoch) != self.key:
            raise OutOfTurn("a token of another session")
        if token.position <= self._position:
            raise OutOfTurn(f"position {token.position} after {self._position}")
        self._position = token.position
        try:
            self._send.send_nowait(token)
        except trio.WouldBlock:
            raise OutOfTurn(f"{MAX_WAITING_TOKENS} tokens that nobody asked for") from None

    async def next(self) -> Token:
        """The next token, whenever it comes: silence is noticed by who watches the chain."""
        return await self._receive.receive()


class TokenDesk:
    """All inboxes of a node, and the handler of token streams."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._inboxes: dict[tuple[SessionId, int], Inbox] = {}

    def grant(self, session_id: SessionId, epoch: int, tail: PeerId) -> tuple[bytes, bytes]:
        """What lets that tail, and nobody else, write a session's tokens; and our signature."""
        expires_at = time.time() + GRANT_SECONDS
        grant = seal(TokenGrant(session_id, epoch, tail, expires_at))
        return grant, self._identity.sign(PURPOSE_TOKEN_GRANT, grant)

    @contextmanager
    def expect(self, session_id: SessionId, epoch: int, tail: PeerId) -> Iterator[Inbox]:
        """An inbox for as long as the session's answer is wanted."""
        inbox = Inbox(session_id, epoch, tail)
        self._inboxes[inbox.key] = inbox
        try:
            yield inbox
        finally:
            del self._inboxes[inbox.key]
            inbox.closed.set()

    async def serve(self, stream: FrameStream, session_id: SessionId | None = None) -> None:
        """Handle one token stream: session after session, each under its own grant.

        With `session_id`, only what is granted for that session.
        """
        while True:
            try:
                opened = await stream.receive(BETWEEN_TIMEOUT)
            except PeerGone:
                return  # between sessions: nothing is owed to anyone
            if not isinstance(opened, TokenOpen):
                raise OutOfTurn(f"{type(opened).__name__} before a grant")
            await self._fill(self._claim(opened, stream.peer_id, session_id), stream)

    def _claim(self, opened: TokenOpen, writer: PeerId, session_id: SessionId | None) -> Inbox:
        payload = check_signature(
            self._identity.peer_id, PURPOSE_TOKEN_GRANT, opened.grant, opened.signature
        )
        grant = decode(payload)
        if not isinstance(grant, TokenGrant) or grant.tail != writer:
            raise BadSignature("a token grant that was given to another peer")
        if session_id not in (None, grant.session_id):
            raise OutOfTurn("a token grant of another session")
        inbox = self._inboxes.get((grant.session_id, grant.epoch))
        if inbox is None or not inbox.granted or grant.expires_at < time.time():
            raise OutOfTurn("a token grant that is used, expired or no longer wanted")
        inbox.granted = False
        return inbox

    async def _fill(self, inbox: Inbox, stream: FrameStream) -> None:
        """Deliver until the answer is complete; give up as soon as nobody waits for it."""
        async with open_conversation() as nursery:

            async def watch() -> None:
                await inbox.closed.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            while True:
                token = await stream.receive()
                if not isinstance(token, Token):
                    raise OutOfTurn(f"{type(token).__name__} in a token stream")
                await inbox.deliver(token)
                if token.reason:
                    nursery.cancel_scope.cancel()
                    return
        raise OutOfTurn("the answer is no longer wanted")


class TokenStream:
    """The tail's way to the entry, opened while the prefill is under way."""

    def __init__(self, directory: Directory, stream: FrameStream) -> None:
        self._directory = directory
        self._stream = stream

    @classmethod
    async def open(cls, directory: Directory, opened: Open) -> TokenStream:
        """Connect if need be, over HTTP where nothing else leads there, and show the grant.

        Raises PeerGone, and RemoteFailure for an entry that takes no streams over HTTP now.
        """
        entry = PeerAddress(opened.chain[0].peer_id, opened.entry_addrs)
        path = TOKEN_PATH + opened.session_id.hex()
        route = Route(opened.entry_url, path) if opened.entry_url else None
        stream = await directory.stream_at(entry, TOKENS, route)
        try:
            await stream.send(TokenOpen(opened.grant, opened.grant_signature))
        except PeerGone:
            await stream.reset()
            raise
        return cls(directory, stream)

    async def say(self, token: Token) -> None:
        """Send one token; after the last the stream is kept for another session."""
        await self._stream.send(token)

    async def watch(self) -> None:
        """Notice when the entry gives the answer up: it says nothing on this stream.

        Raises RemoteFailure with its reason then, or PeerGone, and never returns.
        """
        message = await self._stream.receive()
        if isinstance(message, Fail):
            raise RemoteFailure(message.code, message.text, retry=message.retry)
        raise OutOfTurn(f"{type(message).__name__} from the reader of a token stream")

    def end(self) -> None:
        """The answer is complete."""
        self._directory.give(self._stream)

    async def reset(self) -> None:
        """Give the stream up."""
        await self._stream.reset()
