"""Text that others wrote, as it may be shown: it never steers a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text without control characters, except for line ends and tabs."""
    return "".join(char for char in text if char in "\n\t" or not _is_control(char))


def one_line(text: str) -> str:
    """Text as a single printable line."""
    return " ".join(printable(line) for line in text.splitlines())


def _is_control(char: str) -> bool:
    return ord(char) < 32 or 127 <= ord(char) < 160
