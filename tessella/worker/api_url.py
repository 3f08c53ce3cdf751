"""Where others reach a node over HTTP, from where it listens and what it is told to say."""

from __future__ import annotations

from collections.abc import Sequence

from tessella.core.addresses import read_ip
from tessella.web.targets import parse_url


def api_url_of(public: str, bound: Sequence[str], addrs: Sequence[str]) -> str:
    """The URL of a node's HTTP API that others are told; empty if nobody else gets there.

    `public` is what the operator says. Else it follows from the URLs that are listened on: one at
    all interfaces is reached where libp2p is, at the first of the multiaddrs `addrs` that is an IP
    address; one at a single interface only if libp2p is told to be reached there too.
    """
    if public:
        return public.rstrip("/")
    hosts = [parts[2] for addr in addrs if (parts := addr.split("/"))[1] in ("ip4", "ip6")]
    for url in map(parse_url, bound):
        listens = read_ip(url.host.strip("[]"))
        reached = (
            hosts if listens.is_unspecified else [each for each in hosts if each == str(listens)]
        )
        if reached:
            host = f"[{reached[0]}]" if ":" in reached[0] else reached[0]
            return f"{url.scheme}://{host}:{url.port}"
    return ""
