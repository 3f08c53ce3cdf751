"""Pages of others in somebody's browser: what they ask here is not answered.

A browser on the inside of a network is a way into it, and says in `Origin` whose page asks. Of a
page's own host nothing follows either where that is a name: it may be a stranger's who has it
resolve to this machine. So the pages that may ask are those that came from here, by an address or
as `localhost`, and those of hosts that the operator named. Whatever is no browser sends no Origin.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from tessella.core.errors import BadAddress, NotAuthorized
from tessella.web.hosts import is_local_name, read_host
from tessella.web.targets import HttpUrl, parse_url

_SHOWN = 80


class OwnPages:
    """Middleware that raises NotAuthorized for what another's page asks."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] = ()) -> None:
        """`hosts` are those whose pages are ours: names in lower case, or addresses."""
        self._app = app
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            headers = scope["headers"]
            for origin in (value.decode("latin-1") for name, value in headers if name == b"origin"):
                if not self._is_ours(origin, _authority(headers)):
                    raise NotAuthorized(f"this is not for the pages of {origin[:_SHOWN]!r}")
        await self._app(scope, receive, send)

    def _is_ours(self, origin: str, authority: str) -> bool:
        try:
            page = parse_url(origin)
        except BadAddress:
            return False
        if page.host in self._hosts:
            return True
        return _cannot_be_rebound(page) and authority.lower() in _spellings(page)


def _authority(headers: Collection[tuple[bytes, bytes]]) -> str:
    found = [value for name, value in headers if name == b"host"]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def _cannot_be_rebound(page: HttpUrl) -> bool:
    return is_local_name(page.host) or not isinstance(read_host(page.host), str)


def _spellings(page: HttpUrl) -> tuple[str, str]:
    """The host as a request to the same place names it: a port that is usual may be left out."""
    bare = HttpUrl(page.scheme, page.host, 443 if page.scheme == "https" else 80, "").authority
    return page.authority, f"{bare}:{page.port}"
