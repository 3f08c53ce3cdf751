"""A password in a URL is never shown."""

from __future__ import annotations

import pytest

from tessella.settings.masking import masked


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:////a/b@c", "sqlite:////a/b@c"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://u:p@h:1/d", "postgresql://u:***@h:1/d"),
        ("postgresql://u:p@/w@h/d", "postgresql://u:***@h/d"),
        ("postgresql://h/d?password=p&x=1", "postgresql://h/d?password=***&x=1"),
        ("postgresql://h/d?x=1&sslpassword=p", "postgresql://h/d?x=1&sslpassword=***"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert masked(url) == shown
