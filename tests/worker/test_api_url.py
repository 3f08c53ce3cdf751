"""Others are told a URL that leads to the node, or none."""

from __future__ import annotations

import pytest

from tessella.worker.api_url import api_url_of

LAN = "/ip4/192.168.1.5/tcp/9080"
SIX = "/ip6/2001:db8::5/tcp/9080"
NAME = "/dns4/node.example/tcp/9080"
LOOP = "/ip4/127.0.0.1/tcp/9080"


@pytest.mark.parametrize(
    ("public", "bound", "addrs", "url"),
    [
        ("https://pod-8080.example/", ["http://0.0.0.0:8080"], [LAN], "https://pod-8080.example"),
        ("", ["http://0.0.0.0:8080"], [LAN, SIX], "http://192.168.1.5:8080"),
        ("", ["http://0.0.0.0:8080"], [NAME, LAN], "http://192.168.1.5:8080"),
        ("", ["http://[::]:8080"], [SIX], "http://[2001:db8::5]:8080"),
        ("", ["http://127.0.0.1:8080"], [LAN], ""),
        ("", ["http://127.0.0.1:8080"], [LOOP], "http://127.0.0.1:8080"),
        (
            "",
            ["http://127.0.0.1:8080", "http://192.168.1.5:8081"],
            [LAN],
            "http://192.168.1.5:8081",
        ),
        ("", ["http://0.0.0.0:8080"], [], ""),
        ("", ["http://0.0.0.0:8080"], [NAME], ""),
        ("", [], [LAN], ""),
    ],
)
def test_a_url_that_others_are_told(
    public: str, bound: list[str], addrs: list[str], url: str
) -> None:
    assert api_url_of(public, bound, addrs) == url
