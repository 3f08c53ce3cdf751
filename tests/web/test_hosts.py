"""A host is an IP literal or a name; what other parsers make an address of is refused."""

from __future__ import annotations

import ipaddress

import pytest

from tessella.web.hosts import MAX_NAME, bracketed, is_local_name, read_host


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("127.0.0.1", ipaddress.ip_address("127.0.0.1")),
        ("::1", ipaddress.ip_address("::1")),
        ("::ffff:10.0.0.1", ipaddress.ip_address("10.0.0.1")),
        ("Example.ORG", "example.org"),
        ("example.org.", "example.org"),
        ("a_b-c.x1", "a_b-c.x1"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("127.0.0.1.nip.io", "127.0.0.1.nip.io"),
    ],
)
def test_an_address_or_a_name_is_read(text: str, host: object) -> None:
    assert read_host(text) == host


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "a..b", "-a.org", "a-.org", "a b", "a/b", "a:b", "a@b", "a\n", "bücher.example"),
        *("127.1", "0", "2130706433", "0x7f000001", "0X7F.1", "0x", "0177.0.0.1", "127.0.0.1."),
        *("127.0.0.01", "1.2.3.4.5", "256.1.1.1", "①②⑦.0.0.1", "127。0。0。1", "٠.٠.٠.٠"),
        *(
            "fe80::1%eth0",
            "%31.org",
            "[::1]",
            "::g",
            f"{'a' * 64}.org",
            "a." * (MAX_NAME // 2) + "ab",
        ),
    ],
)
def test_anything_else_is_no_host(text: str) -> None:
    with pytest.raises(ValueError, match="is no host"):
        read_host(text)


def test_only_ipv6_has_brackets_in_a_url() -> None:
    assert [bracketed(host) for host in ("::1", "1.1.1.1", "a.b")] == ["[::1]", "1.1.1.1", "a.b"]


def test_names_of_this_machine_are_known_by_definition() -> None:
    assert is_local_name("localhost")
    assert is_local_name("a.localhost")
    assert not is_local_name("localhost.example.org")
    assert not is_local_name("notlocalhost")
