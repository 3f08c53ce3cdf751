"""Calls to JSON routes: bounded in time and bytes, and every failure an error of our tree.

async with open_client() as client:
    rows = await get_json(client, "https://example.org/api/v1/peers")
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import httpx
import trio

from tessella.core.errors import (
    BadAddress,
    BadFrame,
    PeerClosed,
    PeerSilent,
    PeerUnreachable,
    RemoteFailure,
)
from tessella.core.messages.failure import MAX_FAIL_CHARS
from tessella.web.targets import Target

CONNECT_SECONDS = 3.0
TOTAL_SECONDS = 10.0
"""From the call to the last byte of its answer, connecting included."""
MAX_ANSWER = 64 * 1024
"""Bytes of an answer, unless the caller expects more."""
MAX_CONNECTIONS = 64
"""Calls under way at once, a client."""
MAX_CODE_CHARS = 64
_RETRY = {429, 502, 503, 504}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """What one call may take."""

    answer: int = MAX_ANSWER
    """Bytes of the body of its answer."""
    seconds: float = TOTAL_SECONDS


DEFAULT_CALL = CallLimits()


def open_client(
    transport: httpx.AsyncBaseTransport | None = None,
    *,
    keep_seconds: float = 0.0,
    connections: int = MAX_CONNECTIONS,
) -> httpx.AsyncClient:
    """A client that follows no redirects and heeds no environment. Whoever calls closes it.

    No connection is kept: to a pool they are of an address, but a certificate was checked for a
    name. A client that calls a single host may keep its connections, for `keep_seconds` of
    idleness. `transport` is for tests.
    """
    return httpx.AsyncClient(
        transport=transport,
        verify=_authorities(),
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(TOTAL_SECONDS, connect=CONNECT_SECONDS),
        limits=httpx.Limits(
            max_connections=connections,
            max_keepalive_connections=connections if keep_seconds else 0,
            keepalive_expiry=keep_seconds,
        ),
        headers={"Accept": "application/json", "Accept-Encoding": "identity"},
    )


@cache
def _authorities() -> ssl.SSLContext:
    """Who may vouch for a name. Reading them takes 50 ms, in which nothing else happens."""
    return httpx.create_ssl_context(trust_env=False)


async def get_json(
    client: httpx.AsyncClient,
    url: str | Target,
    *,
    headers: Mapping[str, str] | None = None,
    limits: CallLimits = DEFAULT_CALL,
) -> object:
    """What a GET is answered with, parsed.

    Raises RemoteFailure for an answer that is an error, BadFrame for one that is no JSON or too
    long, PeerUnreachable, PeerSilent or PeerClosed for one that does not come, and BadAddress for
    a URL that cannot be called. All name the URL, without its query.
    """
    _, body = await _call(client, "GET", url, headers=headers, limits=limits)
    return _parse(named(url), body)


async def get_bytes(
    client: httpx.AsyncClient,
    url: str | Target,
    *,
    headers: Mapping[str, str] | None = None,
    limits: CallLimits = DEFAULT_CALL,
) -> tuple[Mapping[str, str], bytes]:
    """The headers, by name in any case, and the body of an answer of any kind; as `get_json`."""
    return await _call(client, "GET", url, headers=headers, limits=limits)


async def post_json(
    client: httpx.AsyncClient,
    url: str | Target,
    body: object,
    *,
    headers: Mapping[str, str] | None = None,
    limits: CallLimits = DEFAULT_CALL,
) -> object:
    """What a POST of a JSON body is answered with; as `get_json`."""
    content = body if isinstance(body, bytes) else json.dumps(body, allow_nan=False).encode()
    sent = {"Content-Type": "application/json", **(headers or {})}
    _, told = await _call(client, "POST", url, headers=sent, content=content, limits=limits)
    return _parse(named(url), told)


async def _call(
    client: httpx.AsyncClient,
    method: str,
    url: str | Target,
    *,
    headers: Mapping[str, str] | None,
    limits: CallLimits,
    content: bytes | None = None,
) -> tuple[Mapping[str, str], bytes]:
    name = named(url)
    with our_errors(name, limits.seconds):
        requests = _requests(client, method, url, headers, content)
        return await first_answer(client, requests, limits.answer, name)


def _requests(
    client: httpx.AsyncClient,
    method: str,
    url: str | Target,
    headers: Mapping[str, str] | None,
    content: bytes | None,
) -> Iterator[httpx.Request]:
    """The request; of a target, one for each of its addresses."""
    if isinstance(url, str):
        yield client.build_request(method, url, headers=headers, content=content)
        return
    for address in url.addresses:
        yield client.build_request(
            method,
            url.url.at(address),
            headers={**(headers or {}), "Host": url.url.authority},
            content=content,
            extensions={"sni_hostname": url.url.host},
        )


async def first_answer(
    client: httpx.AsyncClient, requests: Iterable[httpx.Request], most: int, name: str
) -> tuple[httpx.Headers, bytes]:
    """Headers and body of the answer to the first of these requests that gets a connection.

    They differ in the address alone, and there is at least one. Within `our_errors`: raises
    RemoteFailure for an answer that is an error, BadFrame for one of more than `most` bytes, and
    what httpx raises.
    """
    for request in requests:
        try:
            response, body = await _answer_of(client, request, most, name)
            break
        except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
            failed = exc
    else:
        raise failed
    if not 200 <= response.status_code < 300:
        raise_failure(name, response.status_code, body)
    return response.headers, body


async def _answer_of(
    client: httpx.AsyncClient, request: httpx.Request, most: int, name: str
) -> tuple[httpx.Response, bytes]:
    response = await client.send(request, stream=True)
    try:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise BadFrame(f"{name} answered in an encoding that was not asked for")
        body = bytearray()
        # Cancelled, all of httpx's generators end where they wait; left behind, they would not.
        with trio.CancelScope() as enough:
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > most:
                    enough.cancel()
        if len(body) > most:
            raise BadFrame(f"{name} answered with more than {most} bytes")
        return response, bytes(body)
    finally:
        await response.aclose()


@contextmanager
def our_errors(name: str, seconds: float) -> Iterator[None]:
    """What httpx raises within, as errors of our tree; PeerSilent where it takes longer."""
    try:
        with trio.fail_after(seconds):
            yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as exc:
        raise PeerUnreachable(f"{name} cannot be reached: {exc or 'no answer'}") from exc
    except (httpx.TimeoutException, trio.TooSlowError) as exc:
        raise PeerSilent(f"{name} did not answer within {seconds:g} s") from exc
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as exc:
        raise BadAddress(f"{name} cannot be called: {exc}") from exc
    except httpx.TransportError as exc:
        raise PeerClosed(f"{name} ended the connection: {exc}") from exc


def _parse(name: str, body: bytes) -> object:
    try:
        return json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as exc:
        raise BadFrame(f"{name} answered with what is no JSON") from exc


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


def raise_failure(name: str, status: int, body: bytes) -> NoReturn:
    """Raise what an error answer says; that of another program says only its status."""
    code, text = f"http_{status}", f"{name} answered with status {status}"
    try:
        answer: Any = _parse(name, body)
        told = answer["error"]
        if isinstance(told["code"], str) and isinstance(told["message"], str):
            code = _printable(told["code"], MAX_CODE_CHARS)
            text = _printable(told["message"], MAX_FAIL_CHARS)
    except (BadFrame, TypeError, KeyError, IndexError):
        pass
    raise RemoteFailure(code, text, retry=status in _RETRY)


def _printable(text: str, most: int) -> str:
    return "".join(char if char.isprintable() else " " for char in text[:most])


def named(url: str | Target) -> str:
    """The URL as errors name it: a query may hold what a log should not."""
    text = url.url.at() if isinstance(url, Target) else url
    try:
        return str(httpx.URL(text).copy_with(query=None, fragment=None, userinfo=b""))
    except httpx.InvalidURL:
        return repr(text[:MAX_FAIL_CHARS])
