"""A running musivum, asked over HTTP. The token goes out with orders alone."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import httpx
import trio

from musivum.config import MusivumConfig
from musivum.settings import find_token, load_settings
from tessella.core.errors import BadConfig, BadFrame, RemoteFailure, TooManyRequests
from tessella.web.client import CallLimits, get_json, open_client, post_json
from tessella.web.hosts import bracketed
from tessella.web.listening import parse_http_listen

# 16384 rows of 2 KiB.
ANSWER = CallLimits(answer=32 * 1024 * 1024, seconds=30.0)
# Where one is told to ask more slowly: a bucket of musivum's refills twenty times in this.
PAUSE_SECONDS = 1.0
PATIENCE = 30
_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}

Document = dict[str, Any]
Query = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where a musivum answers, and what its operator says to be known."""

    url: str
    token: str = ""


def door_of(url: str | None, data: str | None, config: Path | None) -> Door:
    """The door of `--url`, or that of the settings. Raises BadConfig."""
    return Door(url=(url or url_of(_settings(data, config))).rstrip("/"))


def operator_door_of(
    url: str | None, data: str | None, config: Path | None, token_file: Path | None
) -> Door:
    """The same with the operator's token. Raises BadConfig, BadKey."""
    settings = _settings(data, config)
    token = find_token(settings, os.environ, token_file)
    return Door(url=(url or url_of(settings)).rstrip("/"), token=token)


def _settings(data: str | None, config: Path | None) -> MusivumConfig:
    return load_settings(config, os.environ, {"data": data})


def url_of(config: MusivumConfig) -> str:
    """Where a musivum with these settings answers programs of its machine. Raises BadConfig."""
    if not config.http:
        raise BadConfig("musivum answers no HTTP by its settings: --url says where another does")
    host, port = parse_http_listen(config.http[0])
    if port == 0:
        raise BadConfig(f"http = {config.http[0]!r} is another port at each start: --url says it")
    return f"http://{bracketed(_LOOPBACK.get(host, host))}:{port}"


def ask(door: Door, path: str, query: Query | None = None) -> object:
    """What a question is answered with, parsed. Raises as `tessella.web.client.get_json`."""
    url = f"{door.url}{path}" + (f"?{urlencode(query)}" if query else "")
    return _call(partial(get_json, url=url, headers=_headers(door), limits=ANSWER))


Ask = Callable[[str, Query], Awaitable[object]]
"""Asks a path with a query; errors as `ask`."""
T = TypeVar("T")


def converse(door: Door, talk: Callable[[Ask], Awaitable[T]]) -> T:
    """What comes of many questions, asked one after the other by `talk`. Whoever asks too fast for
    that musivum waits."""

    async def main() -> T:
        async with open_client() as client:
            return await talk(partial(_ask_patiently, client, door))

    return trio.run(main)


async def _ask_patiently(client: httpx.AsyncClient, door: Door, path: str, query: Query) -> object:
    url = f"{door.url}{path}" + (f"?{urlencode(query)}" if query else "")
    for _ in range(PATIENCE):
        try:
            return await get_json(client, url, headers=_headers(door), limits=ANSWER)
        except RemoteFailure as exc:
            if exc.code != TooManyRequests.code:
                raise
        await trio.sleep(PAUSE_SECONDS)
    return await get_json(client, url, headers=_headers(door), limits=ANSWER)


def order(door: Door, path: str, body: object) -> object:
    """What an order is answered with; errors as `ask`."""
    url = f"{door.url}{path}"
    return _call(partial(post_json, url=url, body=body, headers=_headers(door), limits=ANSWER))


def _headers(door: Door) -> dict[str, str]:
    return {"Authorization": f"Bearer {door.token}"} if door.token else {}


def _call(call: Callable[[httpx.AsyncClient], Awaitable[object]]) -> object:
    async def main() -> object:
        async with open_client() as client:
            return await call(client)

    answer: object = trio.run(main)
    return answer


def one(answer: object) -> Document:
    """An answer that is an object. Raises BadFrame."""
    if not isinstance(answer, dict):
        raise BadFrame("an answer that is no object: is there a musivum at that URL?")
    return answer


def many(answer: object) -> list[Document]:
    """An answer that is a list of objects. Raises BadFrame."""
    if not isinstance(answer, list):
        raise BadFrame("an answer that is no list: is there a musivum at that URL?")
    return [one(each) for each in answer]
