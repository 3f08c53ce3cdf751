"""A page of somebody else's in a browser near by asks in vain."""

from __future__ import annotations

import httpx
import pytest
from starlette.responses import PlainTextResponse

from tessella.web.app import ErrorAnswers
from tessella.web.origins import OwnPages

HOSTS = ("node.example.org", "10.1.2.3")


async def status(host: str, *origins: str) -> tuple[int, str]:
    app = ErrorAnswers(OwnPages(PlainTextResponse("ok"), HOSTS))
    said = [("Host", host), *(("Origin", origin) for origin in origins)]
    headers = [(name.encode(), value.encode("latin-1")) for name, value in said]
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answer = await client.post("/", headers=headers)
    return answer.status_code, answer.text


async def test_who_is_no_browser_asks_as_ever() -> None:
    assert await status("anything.example") == (200, "ok")


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("localhost:8080", "http://localhost:8080"),
        ("LocalHost:8080", "http://localhost:8080"),
        ("localhost", "http://localhost"),
        ("localhost:80", "http://localhost"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("192.0.2.7", "https://192.0.2.7"),
        ("node.example.org", "https://node.example.org"),
        # A proxy that ends TLS may give us a host of its own.
        ("127.0.0.1:8080", "https://node.example.org"),
        ("127.0.0.1:8080", "http://10.1.2.3:3000"),
    ],
)
async def test_our_own_pages_may_ask(host: str, origin: str) -> None:
    assert await status(host, origin) == (200, "ok")


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:8080", "https://evil.example"),
        # A name of theirs that resolves to us: to the browser it is one place.
        ("evil.example:8080", "http://evil.example:8080"),
        ("127.0.0.1.evil.example:8080", "http://127.0.0.1.evil.example:8080"),
        ("127.0.0.1:8080", "http://127.0.0.1:3000"),
        ("127.0.0.1:8080", "http://localhost:8080"),
        ("127.0.0.1:8080", "http://2130706433:8080"),
        ("127.0.0.1:8080", "null"),
        ("127.0.0.1:8080", ""),
        ("127.0.0.1:8080", "file://"),
        ("127.0.0.1:8080", "chrome-extension://abcdefgh"),
        ("127.0.0.1:8080", "https://node.example.org.evil.example"),
        ("127.0.0.1:8080", "https://node.example.org@evil.example"),
        ("127.0.0.1:8080", "https://evil.example\xff"),
    ],
)
async def test_pages_of_others_may_not(host: str, origin: str) -> None:
    code, text = await status(host, origin)
    assert (code, '"not_authorized"' in text) == (403, True)


async def test_every_origin_has_to_be_ours() -> None:
    code, _ = await status("127.0.0.1", "http://127.0.0.1", "https://evil.example")
    assert code == 403
