"""Documents of the settings say everything, and the committed one says what the code does."""

from __future__ import annotations

from pathlib import Path

import typer.main

from musivum.cli.main import app
from musivum.cli.pages import example, keys, markdown
from musivum.settings import FLAGS, variable_of

DOCUMENT = Path(__file__).parents[3] / "docs" / "config.md"


def test_the_page_in_docs_is_what_the_code_says() -> None:
    made = "`(musivum config --markdown; tessella-worker config --markdown) > docs/config.md`"
    assert DOCUMENT.read_text().startswith(markdown()), made


def test_the_page_has_type_default_meaning_variable_and_flag_of_every_key() -> None:
    lines = markdown().splitlines()
    for entry in keys():
        name = entry.key.name
        (row,) = [line for line in lines if line.startswith(f"| `{name}` |")]
        _, kind, default, meaning, variable, flag = row.strip("| ").split(" | ") + [""] * (
            name not in FLAGS
        )
        assert (kind, meaning) == (entry.key.kind.told, entry.meaning)
        assert entry.is_left_out or default == f"`{entry.example}`"
        assert variable == f"`{variable_of(name)}`"
        assert flag.strip("`") == FLAGS.get(name, "")


def test_the_example_comments_every_key() -> None:
    text = example()
    for entry in keys():
        assert f"{entry.key.name} = {entry.example}\n" in text
        assert " ".join(entry.meaning.split()[:3]) in text
    assert max(map(len, text.splitlines())) <= 100


def test_every_flag_that_documents_name_is_one_of_serve() -> None:
    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    known = {name for option in serve.params for name in option.opts}
    assert set(FLAGS.values()) <= known
    assert all(variable_of(key).isupper() for key in FLAGS)
