"""What the value of a setting may be: read from TOML, from text, and told to people.

A reader takes what TOML gives (a flag gives the same) and raises ValueError for another type, or
an InputError that says what is wrong inside.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

from tessella.core.addresses import Cidr, PeerAddress, check_addr, parse_peer
from tessella.core.errors import BadConfig, BadSignature
from tessella.core.identity import public_key_of
from tessella.core.ids import PeerId

OFF = "off"
"""Where nothing has to be sayable, this word is nothing."""
AUTO = "auto"
"""Where a program finds a value of its own, this word leaves it to it."""
_SHOWN = 200
_SWITCHES = {"true": True, "yes": True, "on": True, "1": True}
_SWITCHES |= {"false": False, "no": False, "off": False, "0": False}

Reader = Callable[[object], object]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value."""

    told: str
    """As errors and documents name it."""
    read: Reader
    from_text: Callable[[str], object] = str
    """From an environment variable to what TOML would give. Raises ValueError."""


def plain(value: object) -> object:
    """A value as TOML and JSON write it; None stays None."""
    match value:
        case PeerAddress():
            return value.full()[0]
        case tuple() | list():
            return [plain(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
    return str(value)


def whole(least: int, most: int | None = None) -> Kind:
    """A whole number within these bounds, both included."""

    def read(value: object) -> object:
        found = read_whole(value)
        if found < least or (most is not None and found > most):
            raise ValueError
        return found

    bounds = f"at least {least}" if most is None else f"{least} to {most}"
    return Kind(f"a whole number, {bounds}", read, int)


def number(least: float, *, open_end: bool = False) -> Kind:
    """A number from `least` on; with `open_end` only above it."""

    def read(value: object) -> object:
        found = read_number(value)
        if found < least or (open_end and found == least):
            raise ValueError
        return found

    bounds = f"above {least:g}" if open_end else f"at least {least:g}"
    return Kind(f"a number, {bounds}", read, float)


def choice(*words: str) -> Kind:
    """One of these words, in any case."""
    known = {word.lower(): word for word in words}

    def read(value: object) -> object:
        try:
            return known[read_text(value).lower()]
        except KeyError:
            raise ValueError from None

    return Kind(f"one of {', '.join(words)}", read)


def list_of(told: str, read: Callable[[str], object]) -> Kind:
    """A list of texts, each of which `read` takes; in a variable between commas."""
    return Kind(told, read_list_of(read), list_from)


def read_text(value: object) -> str:
    """A string."""
    if not isinstance(value, str):
        raise ValueError
    return value


def read_whole(value: object) -> int:
    """A whole number, and no truth value."""
    if type(value) is not int:
        raise ValueError
    return value


def read_number(value: object) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError
    return float(value)


def read_switch(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError
    return value


def read_path(value: object) -> Path:
    """A path; `~` is a home directory."""
    text = read_text(value)
    if not text or "\0" in text:
        raise ValueError
    try:
        return Path(text).expanduser()
    except RuntimeError as exc:
        raise ValueError from exc  # `~name`, and there is no such user


def read_list_of(read: Callable[[str], object]) -> Reader:
    """A reader of a list of texts."""

    def read_list(value: object) -> tuple[object, ...]:
        if not isinstance(value, list):
            raise ValueError
        return tuple(read(read_text(each)) for each in value)

    return read_list


def list_from(text: str) -> list[str]:
    """The items between commas."""
    return [each.strip() for each in text.split(",") if each.strip()]


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


def _switch_from(text: str) -> bool:
    try:
        return _SWITCHES[text.lower()]
    except KeyError:
        raise ValueError from None


def _switch_or_networks(value: object) -> object:
    return value if isinstance(value, bool) else NETWORKS.read(value)


def _switch_or_list_from(text: str) -> object:
    return _SWITCHES.get(text.lower(), list_from(text))


TEXT = Kind("a string", read_text)
SWITCH = Kind("true or false", read_switch, _switch_from)
PATH = Kind("a path", read_path)
ADDRS = list_of("a list of multiaddrs", check_addr)
PEERS = list_of("a list of multiaddrs with /p2p/ID", parse_peer)
PEER_IDS = list_of("a list of peer ids", _peer_id)
NETWORKS = list_of("a list of networks", _network)
SWITCH_OR_NETWORKS = Kind(
    "true, false or a list of networks", _switch_or_networks, _switch_or_list_from
)

BY_ANNOTATION = {
    "str": TEXT,
    "int": Kind("a whole number", read_whole, int),
    "float": Kind("a number", read_number, float),
    "bool": SWITCH,
    "Path": PATH,
    "tuple[PeerAddress, ...]": PEERS,
    "tuple[PeerId, ...]": PEER_IDS,
    "tuple[Cidr, ...]": NETWORKS,
    "bool | tuple[Cidr, ...]": SWITCH_OR_NETWORKS,
}
"""The kind that the annotation of a field asks for; ` | None` aside."""
