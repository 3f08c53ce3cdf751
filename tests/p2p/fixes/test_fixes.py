"""Fixes apply once, to one release."""

from __future__ import annotations

import pytest
from libp2p.io.trio import TrioTCPStream
from libp2p.stream_muxer import muxer_multistream

from p2p import fixes
from p2p.fixes import apply_fixes
from p2p.yamux.connection import YamuxConnection
from tessella.core.errors import LocalError


def test_applying_twice_patches_once() -> None:
    apply_fixes()
    before = TrioTCPStream.__init__
    apply_fixes()
    assert TrioTCPStream.__init__ is before
    assert vars(muxer_multistream)["Yamux"] is YamuxConnection


def test_another_release_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixes, "version", lambda name: "0.9.0")
    with pytest.raises(LocalError, match=r"libp2p 0\.9\.0"):
        apply_fixes()
