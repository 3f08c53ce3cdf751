"""libp2p's errors have a meaning of ours, all of them."""

from __future__ import annotations

import importlib
import inspect

import pytest
from libp2p.exceptions import MultiError, ParseError, ValidationError
from libp2p.network.exceptions import SwarmException
from libp2p.network.stream.exceptions import StreamReset
from libp2p.transport.exceptions import OpenConnectionError

from p2p.translate import TABLE, ours, translated
from tessella.core.errors import LocalError, PeerReset, PeerUnreachable

MODULES = (
    "libp2p.exceptions",
    "libp2p.host.exceptions",
    "libp2p.io.exceptions",
    "libp2p.network.connection.exceptions",
    "libp2p.network.exceptions",
    "libp2p.network.stream.exceptions",
    "libp2p.protocol_muxer.exceptions",
    "libp2p.security.exceptions",
    "libp2p.stream_muxer.exceptions",
    "libp2p.transport.exceptions",
)
# Raised while parsing what no stream of ours carries; they fall to the root's meaning.
ELSEWHERE = {MultiError, ParseError, ValidationError}
# Of the resource manager and of rate limits, which are switched off.
UNUSED = {"RateLimitError"}


@pytest.mark.parametrize("module", MODULES)
def test_every_error_of_libp2p_is_in_the_table(module: str) -> None:
    found = importlib.import_module(module)
    missing = [
        name
        for name, kind in inspect.getmembers(found, inspect.isclass)
        if issubclass(kind, Exception)
        and kind.__module__ == module
        and kind not in TABLE
        and kind not in ELSEWHERE
        and name not in UNUSED
    ]
    assert missing == []


def test_the_reason_is_the_one_at_the_bottom() -> None:
    try:
        try:
            raise ConnectionRefusedError(111, "Connection refused")
        except OSError as exc:
            raise SwarmException("fail to open connection to peer X") from exc
    except SwarmException as exc:
        error = ours(exc, "the peer")
    assert isinstance(error, PeerUnreachable)
    assert str(error) == "the peer: Connection refused"


def test_a_subclass_means_what_its_base_means() -> None:
    class Newer(OpenConnectionError):
        pass

    assert isinstance(ours(Newer("x"), "p"), PeerUnreachable)


def test_what_is_not_libp2ps_is_a_bug_of_ours() -> None:
    with pytest.raises(LocalError, match="ZeroDivisionError"), translated("p"):
        _ = 1 // 0


def test_errors_of_ours_pass_through_as_they_are() -> None:
    error = PeerReset("mine")
    with pytest.raises(PeerReset) as found, translated("p"):
        raise error
    assert found.value is error


def test_an_error_without_text_is_named() -> None:
    assert str(ours(StreamReset(), "p")) == "p: StreamReset"
