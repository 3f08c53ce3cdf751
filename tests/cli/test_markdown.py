"""Answers drawn as they come: what is on the terminal at their end, and at what cost."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from tessella.cli.markdown import REDRAW_SECONDS, MarkdownVoice

WIDTH = 40
CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)")
TEXT = "# Title\n\nHello **world**.\n\n```py\nx = 1\n```\n\n1. one\n\n2. two\n"


class Clock:
    def __init__(self, step: float) -> None:
        self.now = 100.0
        self._step = step

    def __call__(self) -> float:
        self.now += self._step
        return self.now


def terminal(height: int = 24) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=True, width=WIDTH, height=height), out


def drawn(text: str, *, step: float = 0.0, size: int = 3) -> str:
    console, out = terminal()
    voice = MarkdownVoice(console, Clock(step))
    for place in range(0, len(text), size):
        voice.say(text[place : place + size])
    voice.end()
    return out.getvalue()


def seen(shown: str) -> str:
    """What is left on a terminal that knows no more than it needs to."""
    rows, row, column = [""], 0, 0
    for count, control, at_start, down, text in CONTROL.findall(shown):
        if control == "A":
            row -= int(count or 1)
        elif control == "K":
            assert count == "2"
            rows[row] = ""
        elif at_start:
            column = 0
        elif down:
            row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
        elif text:
            rows[row] = rows[row][:column].ljust(column) + text + rows[row][column + len(text) :]
            column += len(text)
        else:
            assert control in "mhl"
        assert row >= 0
    return "\n".join(line.rstrip() for line in rows).rstrip("\n")


@pytest.mark.parametrize("step", [0.0, 0.02, 1.0])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_the_same_is_left_however_the_answer_came(step: float, size: int) -> None:
    shown = seen(drawn(TEXT, step=step, size=size))
    assert shown == seen(drawn(TEXT, size=len(TEXT)))
    assert re.findall(r"\w+", shown) == [
        "Title",
        "Hello",
        "world",
        "x",
        "1",
        *["1", "one", "2", "two"],
    ]
    assert "**" not in shown


def test_blocks_are_a_blank_line_apart() -> None:
    assert seen(drawn("one\n\ntwo\n\n\n\nthree\n", size=99)) == "one\n\ntwo\n\nthree"


class Counted(MarkdownVoice):
    """One that counts its drawings."""

    drawings = 0

    def _draw(self) -> None:
        self.drawings += 1
        super()._draw()


@pytest.mark.parametrize(
    ("step", "least", "most"),
    # Each piece looks at the clock once, and each drawing once more.
    [(REDRAW_SECONDS / 20, 4, 6), (1.0, 20, 34)],
    ids=["no more than anyone reads", "no more than a slow machine can"],
)
def test_it_is_not_drawn_for_every_word(step: float, least: int, most: int) -> None:
    console, out = terminal()
    voice = Counted(console, Clock(step))
    for _ in range(100):
        voice.say("a ")
    voice.end()
    assert least <= voice.drawings <= most
    assert "".join(seen(out.getvalue()).split()) == "a" * 100


def test_of_a_block_taller_than_the_terminal_the_end_is_shown() -> None:
    console, out = terminal(height=10)
    voice = MarkdownVoice(console, Clock(1.0))
    voice.say("```py\n" + "".join(f"x{number}\n" for number in range(50)))
    shown = seen(out.getvalue())
    assert "x49" in shown
    assert "x10" not in shown
    voice.end()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a \x1b[2J\x9b5n\x07b", "a [2J5nb"),
        ("<think>hm</think> <b>x</b>", "<think>hm</think> <b>x</b>"),
        ("<div>\nx\n</div>", "<div> x </div>"),
        ("[safe](http://evil)", "safe (http://evil)"),
    ],
)
def test_what_a_model_writes_is_shown_and_does_nothing(text: str, shown: str) -> None:
    out = drawn(text, size=99)
    assert seen(out) == shown
    assert "\x1b]8" not in out


def test_the_cursor_is_shown_again_also_after_half_an_answer() -> None:
    console, out = terminal()
    voice = MarkdownVoice(console, Clock(1.0))
    voice.say("half of a **bold")
    assert "\x1b[?25l" in out.getvalue()
    voice.end()
    assert out.getvalue().rfind("\x1b[?25h") > out.getvalue().rfind("\x1b[?25l")
    assert seen(out.getvalue()).endswith("half of a **bold")
    voice.end()


def test_two_answers_are_two() -> None:
    console, out = terminal()
    voice = MarkdownVoice(console, Clock(0.0))
    for text in ("one", "two"):
        voice.say(f"{text}\n\n")
        voice.end()
    assert seen(out.getvalue()).split() == ["one", "two"]


@settings(max_examples=25, deadline=None)
@given(st.text(st.sampled_from("ab*_`[]()<>!#-|\\ \n\t&;\x1b~1."), max_size=60))
def test_nothing_a_model_writes_makes_drawing_fail(text: str) -> None:
    out = drawn(text, step=1.0, size=7)
    assert out.count("\x1b[?25h") == out.count("\x1b[?25l")


def test_where_a_renderer_fails_the_text_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise RuntimeError

    monkeypatch.setattr("tessella.cli.markdown.rendered", broken)
    assert seen(drawn("**x**", size=9)) == "**x**"
