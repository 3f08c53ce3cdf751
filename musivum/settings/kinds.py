"""What the value of a setting of musivum may be, where that is its own."""

from __future__ import annotations

from pathlib import Path

from musivum.federation.partners import read_partner
from tessella.core.addresses import check_addr
from tessella.core.errors import BadAddress
from tessella.settings.kinds import OFF, Kind, list_from, list_of, read_list_of, read_path
from tessella.web.listening import parse_http_listen


def listen_addr(text: str) -> str:
    """A multiaddr to listen on, from itself or from HOST:PORT (`[::]:4001`, `:4001`).

    Raises BadAddress that names the text.
    """
    if text.startswith("/"):
        return check_addr(text)
    host, colon, port = text.rpartition(":")
    if not colon:
        raise BadAddress(f"not HOST:PORT, nor a multiaddr: {text!r}")
    host = {"": "0.0.0.0", "localhost": "127.0.0.1"}.get(host, host)
    family = "ip6" if host.startswith("[") and host.endswith("]") else "ip4"
    try:
        return check_addr(f"/{family}/{host.strip('[]')}/tcp/{port}")
    except BadAddress as exc:
        raise BadAddress(f"cannot listen on {text!r}: {exc}") from None


def _path_or_off(value: object) -> Path | None:
    return None if value == OFF else read_path(value)


def _http_addr(text: str) -> str:
    parse_http_listen(text)
    return text


def _http_or_off(value: object) -> object:
    return () if value == [OFF] else read_list_of(_http_addr)(value)


OWN_KINDS = {
    "listen": list_of("a list of multiaddrs or HOST:PORT", listen_addr),
    "announce": list_of("a list of multiaddrs", check_addr),
    "http": Kind(f'a list of HOST:PORT, or ["{OFF}"]', _http_or_off, list_from),
    "federation": list_of("a list of PEER@URL", read_partner),
    "snapshot": Kind(f'a path, or "{OFF}"', _path_or_off),
}
"""By key; the others are of the kind that their annotation asks for."""
