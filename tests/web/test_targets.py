"""URLs of strangers: read strictly, judged by address, resolved once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from ipaddress import ip_address, ip_network

import pytest
import trio

from tessella.core.addresses import Cidr
from tessella.core.errors import BadAddress
from tessella.web.targets import MAX_URL_CHARS, HttpUrl, judge_url, parse_url, resolve_target

EVERYTHING: tuple[Cidr, ...] = (ip_network("0.0.0.0/0"), ip_network("::/0"))


@pytest.mark.parametrize(
    ("text", "url", "again"),
    [
        ("https://example.org", HttpUrl("https", "example.org", 443, "/"), "https://example.org/"),
        ("HTTP://Example.ORG.:8080/a?b=c#d", HttpUrl("http", "example.org", 8080, "/a?b=c"),
         "http://example.org:8080/a?b=c"),
        ("http://8.8.8.8:80/%20", HttpUrl("http", "8.8.8.8", 80, "/%20"), "http://8.8.8.8/%20"),
        ("https://[2606:4700::1]:4443/", HttpUrl("https", "2606:4700::1", 4443, "/"),
         "https://[2606:4700::1]:4443/"),
        ("https://[::ffff:8.8.8.8]", HttpUrl("https", "8.8.8.8", 443, "/"), "https://8.8.8.8/"),
        ("https://bücher.example/", HttpUrl("https", "xn--bcher-kva.example", 443, "/"),
         "https://xn--bcher-kva.example/"),
        ("http://example.org?x", HttpUrl("http", "example.org", 80, "/?x"),
         "http://example.org/?x"),
    ],
)  # fmt: skip
def test_a_url_is_read_into_its_parts(text: str, url: HttpUrl, again: str) -> None:
    assert parse_url(text) == url
    assert url.at() == again
    assert parse_url(again) == url


BAD = [
    *("", "example.org", "//example.org", "https:", "https://", "https:///a", "https:example.org"),
    *("ftp://example.org", "file:///etc/passwd", "gopher://example.org", "javascript:alert(1)"),
    *("http://user@example.org", "http://user:pw@example.org", "http://@example.org"),
    *("http://example.org@127.0.0.1", "http://127.0.0.1:80@example.org", "http://a@b@c"),
    *("http://example.org:", "http://example.org:0", "http://example.org:22", "http://a.b:1023"),
    *("http://example.org:65536", "http://example.org:-1", "http://example.org:+80"),
    *("http://example.org:８０", "http://example.org:80:80", "http://[::1", "http://[::1]x"),
    *("http://[127.0.0.1]", "http://::1/", "http://[fe80::1%25eth0]", "http://[::1%lo]/"),
    *("http://exa mple.org", "http://exa\tmple.org", "http://example.org/\r\nHost: x", " http://a.b"),
    *("http://example.org\\@evil.org", "http://example.org/a b", "http://example.org/é"),
    *("http://-a.org", "http://a..b", "http://.", "http://a%2eb", "http://a_b\x00c"),
    *("http://127.1", "http://0x7f000001", "http://2130706433", "http://0177.0.0.1", "http://0"),
    *("http://0x7f.1", "http://127.0.0.1.", "http://017700000001", "http://①②⑦.0.0.1"),
    *("http://127.0.0.01", "http://１２７.0.0.1", "http://ⓛocalhost"),
    f"http://a.b/{'x' * MAX_URL_CHARS}",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_any_other_url_is_refused_whatever_is_allowed(text: str) -> None:
    with pytest.raises(BadAddress):
        parse_url(text)
    assert judge_url(text, EVERYTHING)


NEVER = [
    *("0.0.0.0", "0.1.2.3", "169.254.169.254", "224.0.0.1", "255.255.255.255", "192.88.99.1"),
    *("[::]", "[fe80::1]", "[ff02::1]", "[fec0::1]", "[2002:7f00:1::]", "[64:ff9b::7f00:1]"),
    *("[::127.0.0.1]", "[::ffff:169.254.169.254]", "[2001:0:7f00:1::1]", "[64:ff9b:1::1]"),
]
OWN = ["127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]", "localhost", "a.localhost."]
OWN += ["127。0。0。1", "LOCALHOST"]
LAN = ["10.0.0.1", "172.16.0.1", "192.168.1.1", "[fd00::1]", "[::ffff:10.0.0.1]"]
OTHER = ["100.64.0.1", "198.18.0.1", "203.0.113.7", "[2001:db8::1]"]
PUBLIC = ["8.8.8.8", "[2606:4700::1111]", "example.org", "127.0.0.1.nip.io", "localhost.example"]


@pytest.mark.parametrize(
    ("hosts", "unless_asked", "with_private", "with_everything"),
    [
        (PUBLIC, True, True, True),
        (LAN, False, True, True),
        (OWN, False, True, True),
        (OTHER, False, False, True),
        (NEVER, False, False, False),
    ],
    ids=["public", "lan", "own", "other", "never"],
)
def test_where_a_literal_leads_decides(
    hosts: list[str], unless_asked: bool, with_private: bool, with_everything: bool
) -> None:
    for host in hosts:
        for allowed, expected in (
            (False, unless_asked),
            (True, with_private),
            (EVERYTHING, with_everything),
        ):
            reason = judge_url(f"https://{host}:8443/x", allowed)
            assert (reason is None) == expected, (host, allowed, reason)


def answering(*addresses: str) -> tuple[list[str], object]:
    """A resolver with these answers, and what it was asked."""
    asked: list[str] = []

    async def resolver(host: str, port: int) -> Sequence[str]:
        asked.append(f"{host}:{port}")
        return addresses

    return asked, resolver


@pytest.mark.parametrize(
    ("addresses", "allowed", "passes"),
    [
        (("8.8.8.8",), False, True),
        (("8.8.8.8", "2606:4700::1111"), False, True),
        (("8.8.8.8", "127.0.0.1"), False, False),
        (("10.0.0.1",), False, False),
        (("10.0.0.1",), True, True),
        (("10.0.0.1", "169.254.169.254"), True, False),
        (("::ffff:127.0.0.1",), False, False),
        (("fe80::1%2",), True, False),
        ((), True, False),
        (tuple(f"8.8.8.{n}" for n in range(17)), False, False),
        (("nonsense",), True, False),
    ],
)
async def test_all_addresses_of_a_name_have_to_pass(
    addresses: tuple[str, ...], allowed: bool, passes: bool
) -> None:
    asked, resolver = answering(*addresses)
    if passes:
        target = await resolve_target("https://example.org/x", allowed, resolver=resolver)  # type: ignore[arg-type]
        assert target.addresses == tuple(map(ip_address, addresses))
        assert target.url.at(target.addresses[0]).startswith(f"https://{addresses[0]}")
    else:
        with pytest.raises(BadAddress):
            await resolve_target("https://example.org/x", allowed, resolver=resolver)  # type: ignore[arg-type]
    assert asked == ["example.org:443"]


async def test_a_literal_is_not_looked_up() -> None:
    asked, resolver = answering("127.0.0.1")
    target = await resolve_target("http://8.8.8.8:8080/", False, resolver=resolver)  # type: ignore[arg-type]
    assert (target.addresses, asked) == ((ip_address("8.8.8.8"),), [])


@pytest.mark.parametrize(
    ("url", "addresses", "passes"),
    [
        ("http://example.org/", ("8.8.8.8",), False),
        ("https://example.org/", ("8.8.8.8",), True),
        ("http://nas.example/", ("192.168.1.9",), True),
        ("http://nas.example/", ("192.168.1.9", "8.8.8.8"), False),
    ],
)
async def test_what_is_public_can_be_asked_to_be_https(
    url: str, addresses: tuple[str, ...], passes: bool
) -> None:
    _, resolver = answering(*addresses)
    try:
        await resolve_target(url, True, resolver=resolver, public_https=True)  # type: ignore[arg-type]
    except BadAddress:
        assert not passes
    else:
        assert passes


async def test_every_refusal_reads_the_same_and_only_the_log_knows_why(
    caplog: pytest.LogCaptureFixture, autojump_clock: object
) -> None:
    async def missing(host: str, port: int) -> Sequence[str]:
        raise OSError("no such name")

    async def silent(host: str, port: int) -> Sequence[str]:
        await trio.sleep_forever()
        raise AssertionError

    async def inside(host: str, port: int) -> Sequence[str]:
        return ["10.0.0.1"]

    told = []
    with caplog.at_level(logging.INFO):
        for resolver in (missing, silent, inside):
            with pytest.raises(BadAddress) as caught:
                await resolve_target("http://inner.example/", False, resolver=resolver)
            told.append(str(caught.value))
        with pytest.raises(BadAddress) as caught:
            await resolve_target("http://127.0.0.1/", False)
        told.append(str(caught.value).replace("127.0.0.1", "inner.example"))
    assert len(set(told)) == 1
    assert "10.0.0.1 is not public" in caplog.text
    assert "no such name" in caplog.text
