"""How the wizard asks on a terminal: what is typed comes from a list, what is seen is recorded."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import pytest
from rich.console import Console
from rich.text import Text

from tessella.cli.wizard.talk import MAX_ANSWER_CHARS, TerminalTalk, ask_for, ask_yes, sentence
from tessella.core.errors import BadConfig, ClaimTooSmall

Typing = Callable[..., tuple[TerminalTalk, io.StringIO]]


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Typing:
    """Makes a terminal of 40 columns at which these lines are typed."""

    def make(*lines: str | BaseException) -> tuple[TerminalTalk, io.StringIO]:
        left: Iterator[str | BaseException] = iter(lines)

        def typed(*_: object) -> str:
            line = next(left)
            if isinstance(line, BaseException):
                raise line
            return line

        monkeypatch.setattr("builtins.input", typed)
        out = io.StringIO()
        return TerminalTalk(Console(file=out, width=40, highlight=False)), out

    return make


def test_an_empty_line_is_the_default(typing: Typing) -> None:
    talk, out = typing("", "  ", " /a b ")
    assert [talk.ask("Where", "here") for _ in range(3)] == ["here", "here", "/a b"]
    assert out.getvalue().startswith("Where (here): ")


def test_without_a_default_an_empty_line_is_empty(typing: Typing) -> None:
    talk, out = typing("")
    assert talk.ask("Peers") == ""
    assert out.getvalue() == "Peers: "


def test_brackets_are_no_markup_and_others_do_not_steer_the_terminal(typing: Typing) -> None:
    talk, out = typing("x")
    talk.ask("Which [y/n] [bold]", "[red]d[/]")
    talk.say("a \x1b[2J[bold]b[/]\nc")
    talk.show("x = [1]\n\x1b[2Jy")
    assert (
        out.getvalue() == "Which [y/n] [bold] ([red]d[/]): a [2J[bold]b[/] c\n  x = [1]\n  [2Jy\n"
    )


def test_sentences_are_wrapped_and_shown_text_is_not(typing: Typing) -> None:
    talk, out = typing()
    talk.say("word " * 10)
    talk.show("k" * 60)
    talk.show(Text("table"))
    talk.title("Part")
    assert out.getvalue().split("\n") == [
        "word word word word word word word word ",
        "word word ",
        "  " + "k" * 60,
        "  table".ljust(40),
        "",
        "Part",
        "",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "\udcff",
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        "a\x00b",
        "a\x1b[Ab",
        "x" * (MAX_ANSWER_CHARS + 1),
    ],
)
def test_what_is_no_line_of_text_is_asked_for_again(typing: Typing, line: str | Exception) -> None:
    talk, out = typing(line, "fine")
    assert talk.ask("Q") == "fine"
    assert "That is no" in out.getvalue()


def test_an_answer_out_of_its_rule_is_told_and_asked_for_again(typing: Typing) -> None:
    def read(text: str) -> int:
        if text != "1":
            raise BadConfig(f"no {text}")
        return 1

    talk, out = typing("2", "1")
    assert ask_for(talk, "Q", read) == 1
    assert out.getvalue() == "Q: No 2.\nQ: "


@pytest.mark.parametrize(
    ("lines", "default", "answer"),
    [
        (["y"], False, True),
        (["No"], True, False),
        (["maybe", "YES"], False, True),
        ([""], True, True),
        ([""], False, False),
    ],
)
def test_yes_and_no(typing: Typing, lines: list[str], default: bool, answer: bool) -> None:
    talk, _ = typing(*lines)
    assert ask_yes(talk, "Sure", default=default) is answer


@pytest.mark.parametrize("end", [EOFError(), KeyboardInterrupt()])
def test_the_end_of_input_ends_the_talk(typing: Typing, end: BaseException) -> None:
    talk, _ = typing(end)
    with pytest.raises(type(end)):
        ask_yes(talk, "Sure")


def test_an_error_as_a_sentence() -> None:
    assert sentence(ClaimTooSmall("a claim")) == "A claim."
