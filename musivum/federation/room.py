"""All partners: their pages are pulled, ours are given to them, and anybody may see how it goes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import trio

from musivum.admission import Admission
from musivum.clocks import Clock
from musivum.federation.asking import Caller, answer_headers
from musivum.federation.forgetting import knows
from musivum.federation.partners import Partner
from musivum.federation.pull import Books, Follower
from musivum.federation.words import FederationBody, ForgottenBody
from tessella.core.errors import BadConfig, BadRequest, NotAuthorized
from tessella.core.identity import Identity
from tessella.core.ids import PeerId


class Federation:
    """The partners of one musivum. It holds nothing to be closed."""

    def __init__(
        self,
        caller: Caller,
        books: Books,
        clock: Clock,
        partners: Sequence[Partner],
        seconds: float,
    ) -> None:
        """`clock` gives seconds since 1970; `seconds` is how often each partner is asked.

        Raises BadConfig where we are among the partners ourselves.
        """
        self._caller = caller
        self._books = books
        self._clock = clock
        self._seconds = seconds
        self.followers = {
            each.peer_id: Follower(each, caller, books, clock, seconds) for each in partners
        }
        """By peer id."""
        self.admission = Admission(allow=None, block=(), started=clock())
        """Of partners' calls: another list of nonces than that of nodes, and no list of nodes."""
        if self.identity.peer_id in self.followers:
            raise BadConfig(f"federation: {self.identity.peer_id} is this musivum itself")

    @property
    def identity(self) -> Identity:
        """Ours."""
        return self._caller.identity

    async def run(self) -> NoReturn:
        """Follow every partner, until cancelled. Raises StoreLost."""
        async with trio.open_nursery() as nursery:
            for follower in self.followers.values():
                nursery.start_soon(follower.run)
            await trio.sleep_forever()

    def check_partner(self, peer_id: PeerId) -> None:
        """Raises NotAuthorized for who is no partner."""
        if peer_id not in self.followers:
            raise NotAuthorized(f"{peer_id:.64} is not in the federation of this musivum")

    def heard(self, peer_id: PeerId) -> None:
        """A partner has called, so it can be called."""
        self.followers[peer_id].wake()

    def signed(self, caller: PeerId, nonce: bytes, body: bytes) -> dict[str, str]:
        """The headers of an answer to a partner's call."""
        return answer_headers(self.identity, caller, nonce, body)

    def status(self) -> FederationBody:
        """How each partner stands."""
        return FederationBody(
            peer_id=self.identity.peer_id,
            pull_seconds=self._seconds,
            partners=[each.body() for each in self.followers.values()],
        )

    async def forget(self, peer_id: PeerId) -> ForgottenBody:
        """Undo all that was taken from a musivum, and read it anew if it is a partner.

        Raises BadRequest for one of which nothing is kept, and StoreUnavailable.
        """
        is_known = await self._books.store.transact(partial(knows, origin=peer_id))
        if peer_id == self.identity.peer_id or not is_known:
            raise BadRequest(f"nothing is kept of a partner {peer_id:.64}")
        return ForgottenBody(peer_id=peer_id, entries=await self._follower(peer_id).forget())

    def _follower(self, peer_id: PeerId) -> Follower:
        """Of one that was a partner once, too: it can be forgotten, and is not asked."""
        found = self.followers.get(peer_id)
        return found or Follower(
            Partner(peer_id, ""), self._caller, self._books, self._clock, self._seconds
        )


def issuers(identity: Identity, partners: Sequence[Partner]) -> frozenset[PeerId]:
    """Whose tickets are paid by a musivum with these partners."""
    return frozenset({identity.peer_id, *(each.peer_id for each in partners)})
