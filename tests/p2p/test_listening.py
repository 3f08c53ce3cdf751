"""Which addresses are listened on, and which are told to others."""

from __future__ import annotations

import pytest

from p2p import listening
from p2p.listening import expand
from tessella.core.addresses import MAX_ADDRS


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
