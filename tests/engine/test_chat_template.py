"""A chat template renders as transformers renders it, inside a sandbox, within bounds."""

from __future__ import annotations

from typing import Any

import pytest

from tessella.core.errors import BadRequest, BadWeights
from tessella.engine import chat_template
from tessella.engine.chat_template import ChatTemplate

HI = [{"role": "user", "content": "Hi <b>"}]


def render(source: str, messages: Any = HI, *, ask: bool = True) -> str:
    return ChatTemplate(source).render(
        messages, add_generation_prompt=ask, special_tokens={"bos_token": "<s>"}
    )


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[0]['content'] }}", "<s>Hi <b>"),
        ("{% if add_generation_prompt %}go{% endif %}", "go"),
        ("  {% if true %}\nkept\n  {% endif %}\nend", "kept\nend"),
        ("{% for m in messages %}{{ m.role }}{% break %}{% endfor %}", "user"),
        ("{{ messages | tojson }}", '[{"role": "user", "content": "Hi <b>"}]'),
        ("{{ {'é': 1} | tojson(indent=1) }}", '{\n "é": 1\n}'),
        ("{% generation %}a{{ 'b' }}{% endgeneration %}c", "abc"),
        ("{{ strftime_now('%%') }}", "%"),
        ("{{ tools is none }}", "True"),
        ("{{ eos_token is defined }}", "False"),
        ("{% set ns = namespace(n=0) %}{% set ns.n = 3 %}{{ ns.n }}", "3"),
    ],
)
def test_what_templates_expect_is_there(source: str, text: str) -> None:
    assert render(source) == text


def test_no_answer_is_asked_for_unless_wanted() -> None:
    assert render("{% if add_generation_prompt %}go{% endif %}", ask=False) == ""


def test_the_templates_own_refusal_is_told() -> None:
    with pytest.raises(BadRequest, match="chat template: roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content.nothing.more }}",
        "{{ 1 / 0 }}",
        "{{ 'a' + 1 }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ range(10**9) | list }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    ],
)
def test_a_template_that_fails_or_leaves_its_sandbox_is_a_bad_request(source: str) -> None:
    with pytest.raises(BadRequest, match=r"^chat template: "):
        render(source)


@pytest.mark.parametrize("source", ["{% if %}", "{{ 'open", "{% unknown %}"])
def test_a_template_that_cannot_be_compiled_is_bad_weights(source: str) -> None:
    with pytest.raises(BadWeights, match="cannot be compiled"):
        render(source)


def test_output_is_cut_off_while_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MAX_PROMPT_CHARS", 1000)
    with pytest.raises(BadRequest, match="over 1000 characters"):
        render("{% for i in range(99999) %}{% for j in range(99999) %}xx{% endfor %}{% endfor %}")


def test_a_source_without_end_is_refused() -> None:
    with pytest.raises(BadWeights, match="characters"):
        ChatTemplate("x" * (chat_template.MAX_TEMPLATE_CHARS + 1))


@pytest.mark.parametrize(
    ("messages", "named"),
    [
        ([], "at least one"),
        ([{"role": "user"}], r"messages\[0\].content"),
        ([*HI, {"role": "user", "content": None}], r"messages\[1\].content"),
        ([{"role": 3, "content": "x"}], r"messages\[0\].role"),
        ([{"role": "user", "content": ["x"]}], r"messages\[0\].content"),
    ],
)
def test_a_message_without_text_is_named(messages: list[Any], named: str) -> None:
    with pytest.raises(BadRequest, match=named):
        render("", messages)
