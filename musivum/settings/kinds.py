"""What the value of a setting may be: read from TOML, from text, and told to people.

A reader takes what TOML gives (a flag gives the same) and raises ValueError for another type, or
an InputError that says what is wrong inside. What it returns is what `MusivumConfig` takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import Field, dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from tessella.core.addresses import Cidr, PeerAddress, check_addr, parse_peer
from tessella.core.errors import BadAddress, BadConfig, BadSignature
from tessella.core.identity import public_key_of
from tessella.core.ids import PeerId
from tessella.web.listening import parse_http_listen

OFF = "off"
"""Where nothing has to be sayable, this word is nothing."""
_SHOWN = 200
_SWITCHES = {"true": True, "yes": True, "on": True, "1": True}
_SWITCHES |= {"false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value."""

    told: str
    """As errors and documents name it."""
    read: Callable[[object], object]
    from_text: Callable[[str], object] = str
    """From an environment variable to what TOML would give. Raises ValueError."""


def kind_of(field: Field[Any]) -> Kind:
    """The kind of a field of `MusivumConfig`: its own, or that of its annotation."""
    return _BY_NAME.get(field.name) or _BY_TYPE[str(field.type)]


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


def plain(value: object) -> object:
    """A value as TOML and JSON write it; None stays None."""
    match value:
        case PeerAddress():
            return value.full()[0]
        case tuple():
            return [plain(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
    return str(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _whole(value: object) -> int:
    if type(value) is not int:
        raise ValueError
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError
    return float(value)


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _path(value: object) -> Path:
    text = _text(value)
    if not text or "\0" in text:
        raise ValueError
    try:
        return Path(text).expanduser()
    except RuntimeError as exc:
        raise ValueError from exc  # `~name`, and there is no such user


def _path_or_off(value: object) -> Path | None:
    return None if value == OFF else _path(value)


def _list_of(read: Callable[[str], object]) -> Callable[[object], object]:
    def read_list(value: object) -> tuple[object, ...]:
        if not isinstance(value, list):
            raise ValueError
        return tuple(read(_text(each)) for each in value)

    return read_list


def _http_or_off(value: object) -> object:
    return () if value == [OFF] else _list_of(_http_addr)(value)


def _http_addr(text: str) -> str:
    parse_http_listen(text)
    return text


def _peer_id(text: str) -> PeerId:
    try:
        public_key_of(text)
    except BadSignature as exc:
        raise BadConfig(f"{text[:_SHOWN]!r}: {exc}") from None
    return PeerId(text)


def _network(text: str) -> Cidr:
    try:
        return ip_network(text)
    except ValueError as exc:
        raise BadConfig(f"no network: {exc}") from None


def _switch_or_networks(value: object) -> object:
    return value if isinstance(value, bool) else _networks(value)


def _switch_from(text: str) -> bool:
    try:
        return _SWITCHES[text.lower()]
    except KeyError:
        raise ValueError from None


def _list_from(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _switch_or_list_from(text: str) -> object:
    return _SWITCHES.get(text.lower(), _list_from(text))


_networks = _list_of(_network)
_PATH = Kind("a path", _path)
_PEER_IDS = Kind("a list of peer ids", _list_of(_peer_id), _list_from)
_BY_TYPE = {
    "str": Kind("a string", _text),
    "int": Kind("a whole number", _whole, int),
    "float": Kind("a number", _number, float),
    "bool": Kind("true or false", _switch, _switch_from),
    "Path": _PATH,
    "Path | None": _PATH,
    "tuple[PeerAddress, ...]": Kind(
        "a list of multiaddrs with /p2p/ID", _list_of(parse_peer), _list_from
    ),
    "tuple[PeerId, ...]": _PEER_IDS,
    "tuple[PeerId, ...] | None": _PEER_IDS,
    "tuple[Cidr, ...]": Kind("a list of networks", _networks, _list_from),
    "bool | tuple[Cidr, ...] | None": Kind(
        "true, false or a list of networks", _switch_or_networks, _switch_or_list_from
    ),
}
_BY_NAME = {
    "listen": Kind("a list of multiaddrs or HOST:PORT", _list_of(listen_addr), _list_from),
    "announce": Kind("a list of multiaddrs", _list_of(check_addr), _list_from),
    "http": Kind(f'a list of HOST:PORT, or ["{OFF}"]', _http_or_off, _list_from),
    "snapshot": Kind(f'a path, or "{OFF}"', _path_or_off),
}
