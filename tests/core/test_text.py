"""What others wrote never steers a terminal."""

from __future__ import annotations

import pytest

from tessella.core.text import one_line, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("\x1b]0;title\x07", "]0;title"),
        ("\x9b31m", "31m"),
        ("汉字 🏳️‍🌈", "汉字 🏳️‍🌈"),
        ("a\rb\x7f", "ab"),
    ],
)
def test_control_characters_are_not_printed(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_one_line_is_one_line() -> None:
    assert one_line("a\nb\r\nc\u2028d") == "a b c d"
