"""Whom an operator lists: the key of a musivum, and where it answers HTTP."""

from __future__ import annotations

from dataclasses import dataclass

from tessella.core.errors import BadAddress, BadConfig, BadSignature
from tessella.core.identity import public_key_of
from tessella.core.ids import PeerId
from tessella.web.targets import parse_url

# Each is pulled by a task of its own, and holds at most a page.
MAX_PARTNERS = 64
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Partner:
    """A musivum whose tickets are paid here, and whose ledger counts here."""

    peer_id: PeerId
    url: str
    """Without a `/` at its end."""

    def __str__(self) -> str:
        return f"{self.peer_id}@{self.url}"


def read_partner(text: str) -> Partner:
    """`PEER@URL` as a value. Raises BadConfig, and BadAddress, that name the text."""
    peer_id, at, url = text.strip().partition("@")
    if not at:
        raise BadConfig(f"not PEER@URL: {text[:_SHOWN]!r}")
    try:
        public_key_of(peer_id)
    except BadSignature as exc:
        raise BadConfig(f"{exc}, in {text[:_SHOWN]!r}") from None
    if "?" in url or "#" in url:
        raise BadAddress(f"a URL with more than a path: {url[:_SHOWN]!r}")
    parse_url(url)
    return Partner(PeerId(peer_id), url.rstrip("/"))


def check_partners(partners: tuple[Partner, ...]) -> None:
    """Raises BadConfig for too many, or for one that is listed twice."""
    if len(partners) > MAX_PARTNERS:
        raise BadConfig(f"federation: {len(partners)} partners, over {MAX_PARTNERS}")
    listed = [partner.peer_id for partner in partners]
    for peer_id in listed:
        if listed.count(peer_id) > 1:
            raise BadConfig(f"federation: {peer_id} is listed twice")
