"""Answers drawn as Markdown while they come: what is complete stays, and only the rest is redrawn.

What a model writes is data: it makes no terminal controls, no links that hide where they lead, and
its HTML is shown as the text that it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import dropwhile

from markdown_it import MarkdownIt
from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment, Segments
from rich.text import Text

from tessella.cli.markdown_blocks import Blocks
from tessella.core.text import printable

REDRAW_SECONDS = 0.1
"""Between two drawings of the open block: reading is no faster."""
REDRAW_SHARE = 0.25
"""Of the time, at most, goes into drawing: a machine that is slow has better things to do."""
_PARSER = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")

Line = list[Segment]


class MarkdownVoice:
    """A voice for a terminal. `clock` gives seconds."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._blocks = Blocks()
        self._live: Live | None = None
        self._draw_again_at = 0.0
        self._is_first = True

    def say(self, text: str) -> None:
        """Draw the next piece, now or with the pieces that follow it."""
        for block in self._blocks.feed(printable(text)):
            self._keep(block)
        started = self._clock()
        if started >= self._draw_again_at:
            self._draw()
            took = self._clock() - started
            self._draw_again_at = started + max(REDRAW_SECONDS, took / REDRAW_SHARE)

    def end(self) -> None:
        """Draw what is left, and leave the cursor below it."""
        try:
            for block in self._blocks.close():
                self._keep(block)
        finally:
            live, self._live = self._live, None
            if live is not None:
                live.stop()
            self._draw_again_at, self._is_first = 0.0, True

    def _keep(self, block: str) -> None:
        """Print a block for good, above what is drawn."""
        if self._live is not None:
            self._live.update(Text())
        lines = self._lines(block)
        if not lines:
            return
        if not self._is_first:
            self._console.print()
        self._is_first = False
        self._console.print(_segments(lines), end="")

    def _draw(self) -> None:
        # Of a block that is taller than the terminal the end is what is read.
        most = max(1, self._console.height - 2)
        lines = self._lines(self._blocks.ending(most))[-most:]
        if not lines:
            return
        if self._live is None:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )
            self._live.start()
        self._live.update(_segments([[], *lines] if not self._is_first else lines), refresh=True)

    def _lines(self, text: str) -> list[Line]:
        if not text.strip():
            return []
        try:
            lines = self._console.render_lines(rendered(text), pad=False)
        except Exception:  # noqa: BLE001 - whatever a renderer fails at, the answer is shown
            lines = self._console.render_lines(Text(text), pad=False)
        # Lists and tables bring blank lines of their own.
        return _from_first_seen(_from_first_seen(lines)[::-1])[::-1]


def rendered(text: str) -> Markdown:
    """A block of Markdown for rich to draw."""
    markdown = Markdown("", hyperlinks=False)
    markdown.parsed = _PARSER.parse(text)
    return markdown


def _from_first_seen(lines: list[Line]) -> list[Line]:
    return list(dropwhile(lambda line: not any(map(_is_seen, line)), lines))


def _is_seen(segment: Segment) -> bool:
    return bool(segment.text.strip() or (segment.style and segment.style.bgcolor))


def _segments(lines: Iterable[Line]) -> Segments:
    return Segments([segment for line in lines for segment in (*line, Segment.line())])
