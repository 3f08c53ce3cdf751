"""A host as a person or a stranger writes it: an IP literal or a name, and nothing in between.

Resolvers and URL parsers disagree about what lies in between: `127.1`, `0x7f000001`, `2130706433`
and `0177.0.0.1` are loopback to some and names to others. Here they are neither.
"""

from __future__ import annotations

import re

from tessella.core.addresses import Ip, read_ip

MAX_NAME = 253
"""Characters of a DNS name."""
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE | re.ASCII)


def read_host(text: str) -> Ip | str:
    """An address, or a name in lower case without its last dot. Raises ValueError that says why.

    IPv6 comes without brackets and without a zone, and mapped IPv4 as what it is.
    """
    if "%" in text:
        raise ValueError(f"{text!r} is no host: a zone or an escape is in it")
    try:
        return read_ip(text)
    except ValueError:
        return _read_name(text)


def bracketed(host: str) -> str:
    """The host as it stands in a URL before its port."""
    return f"[{host}]" if ":" in host else host


def is_local_name(name: str) -> bool:
    """Whether a name is this machine's own by definition (RFC 6761)."""
    return name == "localhost" or name.endswith(".localhost")


def _read_name(text: str) -> str:
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > MAX_NAME or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(f"{text[:MAX_NAME]!r} is no host")
    if _NUMBER.fullmatch(labels[-1]):
        raise ValueError(f"{text!r} is no host: an address is four decimal numbers")
    return name
