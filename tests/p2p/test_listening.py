"""Which addresses are listened on, and which are told to others."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from p2p import listening
from p2p.listening import Announcement, expand
from tessella.core.addresses import MAX_ADDRS, Cidr
from tessella.core.errors import BadAddress

PUBLIC = "/ip4/8.8.8.8/tcp/7"
HOME: tuple[Cidr, ...] = (ip_network("192.168.0.0/16"),)
INTERFACES = ["8.8.4.4", "10.0.0.5", "192.168.1.2", "169.254.7.7", "100.64.0.9"]


@pytest.mark.parametrize(
    ("interfaces", "addrs", "expected"),
    [
        (["10.0.0.5"], ["/ip4/127.0.0.1/tcp/7"], ["/ip4/127.0.0.1/tcp/7"]),
        (["10.0.0.5"], ["/ip4/0.0.0.0/tcp/7"], ["/ip4/10.0.0.5/tcp/7"]),
        ([], ["/ip4/0.0.0.0/tcp/7"], ["/ip4/127.0.0.1/tcp/7"]),
        ([], ["/ip6/::/tcp/7"], ["/ip6/::1/tcp/7"]),
        (["10.0.0.5"], ["/ip4/0.0.0.0/tcp/7", "/ip4/10.0.0.5/tcp/7"], ["/ip4/10.0.0.5/tcp/7"]),
        ([f"10.0.0.{n}" for n in range(99)], ["/ip4/0.0.0.0/tcp/7"], None),
    ],
)
def test_wildcards_become_interfaces(
    monkeypatch: pytest.MonkeyPatch,
    interfaces: list[str],
    addrs: list[str],
    expected: list[str] | None,
) -> None:
    monkeypatch.setattr(listening, "get_network_addrs", lambda family: interfaces)
    found = expand(addrs)
    if expected is None:
        assert len(found) == MAX_ADDRS
    else:
        assert list(found) == expected


def own(*hosts: str) -> list[str]:
    return [f"/ip4/{host}/tcp/7" for host in hosts]


@pytest.mark.parametrize(
    ("announced", "allow_private", "told"),
    [
        ((), True, own("8.8.4.4", "10.0.0.5", "192.168.1.2", "100.64.0.9")),
        ((), False, own("8.8.4.4")),
        ((), HOME, own("8.8.4.4", "192.168.1.2")),
        ((PUBLIC,), False, [PUBLIC, *own("8.8.4.4")]),
        ((PUBLIC,), True, [PUBLIC, *own("8.8.4.4", "10.0.0.5", "192.168.1.2", "100.64.0.9")]),
        (tuple(own("192.168.1.2")), HOME, own("192.168.1.2", "8.8.4.4")),
        (("/dns4/example.org/tcp/9",), False, ["/dns4/example.org/tcp/9", *own("8.8.4.4")]),
    ],
)
def test_what_is_told_is_what_others_can_dial_and_the_operators_first(
    monkeypatch: pytest.MonkeyPatch,
    announced: tuple[str, ...],
    allow_private: bool | tuple[Cidr, ...],
    told: list[str],
) -> None:
    monkeypatch.setattr(listening, "get_network_addrs", lambda family: INTERFACES)
    announcement = Announcement(announced, allow_private)
    assert list(announcement.of(["/ip4/0.0.0.0/tcp/7"])) == told
    assert announcement.of([]) == ()


@pytest.mark.parametrize(
    ("addr", "allow_private"),
    [
        ("/ip4/0.0.0.0/tcp/7", True),
        ("/ip4/169.254.1.1/tcp/7", True),
        ("/ip4/192.168.1.2/tcp/7", False),
        ("/ip4/8.8.8.8/tcp/0", True),
        ("", True),
    ],
)
def test_what_nobody_could_dial_is_not_announced(addr: str, allow_private: bool) -> None:
    with pytest.raises(BadAddress, match=addr or "not a multiaddr"):
        Announcement((addr,), allow_private)


def test_a_node_that_nobody_could_dial_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "get_network_addrs", lambda family: ["10.0.0.5", "169.254.7.7"])
    bound = ["/ip4/0.0.0.0/tcp/7"]
    with pytest.raises(BadAddress, match=r"10\.0\.0\.5 is not public, 169.*announce"):
        Announcement(allow_private=False).refuse_unreachable(bound)
    Announcement((PUBLIC,), allow_private=False).refuse_unreachable(bound)
    Announcement(allow_private=True).refuse_unreachable(bound)
    Announcement(allow_private=False).refuse_unreachable([])
