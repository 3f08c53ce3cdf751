"""What is listed of the places that a node names: what was shown to be its own, and nothing else.

    addresses   those at which its key answered a dial-back
    URL         if its host is one of those, or if its key answered a challenge there

Clients and other nodes are sent to what is listed, so nobody may name a machine of somebody else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from musivum.nodes.registration import Wish
from tessella.core.addresses import Ip
from tessella.core.errors import AddressUnproven, BadAddress
from tessella.core.ids import PeerId
from tessella.web.targets import MAX_URL_CHARS, parse_url


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What was found out about the places that a node names."""

    addrs: tuple[str, ...] = ()
    """Where its key answered over libp2p."""
    url: bool = False
    """Whether its key answered at its URL. False as well where nobody asked."""
    failures: tuple[str, ...] = ()
    """A line for every other address that was tried."""
    url_failure: str = ""
    """A line for the URL where its key did not answer."""
    ips: tuple[Ip, ...] = ()
    """Where its key answered, as limits by address count it."""


def wants_challenge(api_url: str, addrs: tuple[str, ...]) -> bool:
    """Whether these addresses, all proven, leave it open whose the URL is."""
    return bool(api_url) and parse_url(api_url).host not in _hosts(addrs)


def listed(peer_id: PeerId, wish: Wish, shown: Shown) -> Wish:
    """The wish with the places that are listed.

    Raises AddressUnproven where its key answered nowhere, saying what each place answered, and
    BadAddress for a URL of somebody else.
    """
    is_known = not wants_challenge(wish.api_url, shown.addrs)
    if shown.url or (shown.addrs and is_known):
        return replace(wish, addrs=shown.addrs, ips=shown.ips)
    if not shown.addrs:
        tried = "; ".join(filter(None, (*shown.failures, shown.url_failure)))
        raise AddressUnproven(
            f"nobody with the key of {peer_id} answered: {tried}. Open the port, or say with "
            "--public-ip where the node can be dialled, or with --public-api-url where a tunnel "
            "leads to its HTTP API"
        )
    hosts = ", ".join(sorted(_hosts(shown.addrs)))
    raise BadAddress(
        f"{wish.api_url[:MAX_URL_CHARS]!r} cannot be listed: its host is none of the addresses at "
        f"which the node answers ({hosts}), and {shown.url_failure}"
    )


def _hosts(addrs: tuple[str, ...]) -> set[str]:
    return {addr.split("/")[2] for addr in addrs}
