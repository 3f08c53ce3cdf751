"""HOST:PORT is read strictly, and a socket that cannot be had is named."""

from __future__ import annotations

import errno
import re
import socket

import pytest
import trio

from tessella.core.errors import BadAddress, PortInUse
from tessella.web.listening import bound_url, close_listeners, open_listeners, parse_http_listen


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("0.0.0.0:4080", ("0.0.0.0", 4080)),
        ("[::1]:80", ("::1", 80)),
        ("[::]:0", ("::", 0)),
        (":4080", ("", 4080)),
        ("localhost:4080", ("localhost", 4080)),
        (" Node-1.example.org:65535 ", ("node-1.example.org", 65535)),
    ],
)
def test_an_address_to_listen_on_is_read(text: str, expected: tuple[str, int]) -> None:
    assert parse_http_listen(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "4080", "localhost", "localhost:", "localhost:http", "127.0.0.1:65536"),
        *("127.0.0.1:-1", "127.0.0.1:+80", "127.0.0.1:８０", "127.0.0.1:000080", "::1:80", "::1"),
        *("[::1]", "[127.0.0.1]:80", "[localhost]:80", "[]:80", "[::1:80", "127.1:80", "0:80"),
        *("http://localhost:80", "/ip4/127.0.0.1/tcp/80", "a b:80", "fd://3:80", "[fe80::1%lo]:80"),
    ],
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadAddress, match=re.escape(repr(text)) if text else "HOST:PORT"):
        parse_http_listen(text)


class Resolver(trio.abc.HostnameResolver):
    """Names of this test."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    async def getaddrinfo(self, host: object, port: object, *rest: object) -> list[object]:  # type: ignore[override]
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [
            (socket.AF_INET6 if ":" in each else socket.AF_INET, 1, 6, "", (each, port))
            for each in self.addresses
        ]

    async def getnameinfo(self, sockaddr: object, flags: int) -> tuple[str, str]:
        raise AssertionError


@pytest.mark.mesh
@pytest.mark.parametrize(
    ("listen", "dialled", "shown"),
    [
        ("127.0.0.1:0", "127.0.0.1", r"127\.0\.0\.1"),
        ("[::1]:0", "::1", r"\[::1\]"),
        (":0", "127.0.0.1", r"\[::\]|0\.0\.0\.0"),
        ("localhost:0", "localhost", r"127\.0\.0\.1|\[::1\]"),
    ],
)
async def test_port_0_is_a_free_port_that_can_be_dialled(
    listen: str, dialled: str, shown: str
) -> None:
    if ":" in dialled:
        skip_without_ipv6()
    (listener,) = await open_listeners(listen)
    port = listener.socket.getsockname()[1]
    assert re.fullmatch(f"http://({shown}):{port}", bound_url(listener))
    stream = await trio.open_tcp_stream(dialled, port)
    await stream.aclose()
    await close_listeners([listener])


@pytest.mark.mesh
async def test_a_taken_port_is_named_and_nothing_stays_open() -> None:
    (listener,) = await open_listeners("127.0.0.1:0")
    text = bound_url(listener).removeprefix("http://")
    try:
        with pytest.raises(PortInUse, match=f"another program listens on {re.escape(text)}"):
            await open_listeners(text)
    finally:
        await close_listeners([listener])
    await close_listeners(await open_listeners(text))


@pytest.mark.mesh
@pytest.mark.parametrize("text", ["203.0.113.7:0", "[2001:db8::7]:0"])
async def test_an_address_of_another_machine_is_named(text: str) -> None:
    with pytest.raises(BadAddress, match=re.escape(f"cannot listen on {text}")):
        await open_listeners(text)


@pytest.mark.mesh
async def test_a_name_is_listened_on_at_all_its_addresses_that_are_here() -> None:
    trio.socket.set_custom_hostname_resolver(Resolver("127.0.0.2", "203.0.113.7", "127.0.0.3"))
    first = await open_listeners("node.example:0")
    assert len(first) == 1
    port = first[0].socket.getsockname()[1]
    await close_listeners(first)
    opened = await open_listeners(f"node.example:{port}")
    assert [bound_url(each) for each in opened] == [
        f"http://127.0.0.2:{port}",
        f"http://127.0.0.3:{port}",
    ]
    await close_listeners(opened)


@pytest.mark.mesh
async def test_a_name_is_listened_on_at_all_its_addresses_or_at_none() -> None:
    trio.socket.set_custom_hostname_resolver(Resolver("127.0.0.2", "127.0.0.3"))
    (taken,) = await open_listeners("127.0.0.3:0")
    port = taken.socket.getsockname()[1]
    try:
        with pytest.raises(PortInUse, match=f"another program listens on node.example:{port}"):
            await open_listeners(f"node.example:{port}")
        await close_listeners(await open_listeners(f"127.0.0.2:{port}"))
    finally:
        await close_listeners([taken])


async def test_a_name_without_an_address_is_named() -> None:
    trio.socket.set_custom_hostname_resolver(Resolver())
    with pytest.raises(BadAddress, match=r"cannot listen on node\.example:80"):
        await open_listeners("node.example:80")


async def test_a_port_that_is_not_ours_to_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(self: object, address: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with trio.socket.socket() as any_socket:
        monkeypatch.setattr(type(any_socket), "bind", refused)
    with pytest.raises(BadAddress, match=r"cannot listen on 127\.0\.0\.1:80: Permission denied"):
        await open_listeners("127.0.0.1:80")


def skip_without_ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
