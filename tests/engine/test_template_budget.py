"""A template that never ends is stopped, wherever it repeats itself, and others are left alone."""

from __future__ import annotations

import jinja2
import pytest

from tessella.engine import template_budget
from tessella.engine.template_budget import BudgetedEnvironment, TooMuch

STEPS = 20_000


def render(source: str, **values: object) -> str:
    return BudgetedEnvironment().from_string(source).render(values)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_budget, "MAX_STEPS", STEPS)
    monkeypatch.setattr(template_budget, "MAX_WRITTEN_CHARS", 100_000)
    monkeypatch.setattr(template_budget, "MAX_SIZE", 50_000)


ENDLESS = [
    "{% for i in range(999) %}{% for j in range(999) %}{% endfor %}{% endfor %}",
    "{% for i in range(999) %}{% for j in range(999) if false %}{% endfor %}{% endfor %}",
    "{% for i in [1] recursive %}{{ loop([1, 2, 3]) if loop.depth < 50 }}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "{% block a %}{% for i in range(99) %}{% endfor %}{% endblock %}"
    "{% for i in range(999) %}{{ self.a() }}{% endfor %}",
    "{% for i in range(999) %}{% block a scoped %}"
    "{% for j in range(999) %}{% endfor %}{% endblock %}{% endfor %}",
    "{% for i in range(999) %}{% set x = range(9999) | map('string') | list %}{% endfor %}",
    "{% for i in range(999) %}" + "{{ x.y.z }}" * 99 + "{% endfor %}",
]


@pytest.mark.parametrize("source", ENDLESS)
def test_what_goes_on_too_long_is_stopped(source: str) -> None:
    with pytest.raises(TooMuch, match=f"more than {STEPS} steps"):
        render(source, x={"y": {"z": ""}})


GROWING = [
    "{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "{% for i in range(99) %}{% set ns.s = [ns.s] + [ns.s] %}{{ ns.s }}{% endfor %}",
    "{% for i in range(99) %}{% set t %}{{ ns.s }}{{ ns.s }}{% endset %}"
    "{% set ns.s = t %}{% endfor %}",
    "{% set t %}{% for i in range(999) %}" + "y" * 999 + "{% endfor %}{% endset %}",
]


@pytest.mark.parametrize("source", GROWING)
def test_text_that_doubles_and_doubles_is_stopped(source: str) -> None:
    with pytest.raises(TooMuch, match=r"it (writes|makes)"):
        render("{% set ns = namespace(s='x') %}" + source)


@pytest.mark.parametrize(
    "expression",
    [
        "'x' * 10**9",
        "10**9 * [1]",
        "10**(10**9)",
        "(2**4000) * (2**4000)",
        "'%1000000000d' % 1",
        "'%*d' % (1000000000, 1)",
        "'{:1000000000}'.format(1)",
        "'{:{}}'.format(1, 1000000000)",
        "'{a:1000000000}'.format_map({'a': 1})",
        "'x' | center(1000000000)",
        "'x' | indent(width=1000000000)",
        "'x'.ljust(1000000000)",
        "(1).to_bytes(1000000000, 'big')",
        "[1] | batch(1000000000, 0) | list",
        "1 | round(1000000000, 'ceil')",
    ],
)
def test_one_operation_cannot_make_something_endless(expression: str) -> None:
    with pytest.raises(TooMuch):
        render("{{ " + expression + " }}")


@pytest.mark.parametrize("source", ["{{ lipsum() }}", "{{ 'x' | format(1) }}"])
def test_makers_of_filler_text_are_not_there(source: str) -> None:
    with pytest.raises(jinja2.TemplateError):
        render(source)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "{% for m in xs %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}"
            "{{ loop.previtem }}{{ loop.nextitem }} {% else %}none{% endfor %}",
            "1/2Falseb 2/2Truea ",
        ),
        ("{% for m in nothing %}x{% else %}none{% endfor %}", "none"),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "a1"),
        ("{% for x in xs if x != 'a' %}{{ x }}{% endfor %}", "b"),
        (
            "{% for x in [[1, [2]]] recursive %}"
            "{{ loop(x) if x is iterable else x }}{% endfor %}",
            "12",
        ),
        ("{{ nothing | default(1000000) }}", "1000000"),
        ("{{ {}.get('a', 1000000) }}", "1000000"),
        ("{% macro f(n) %}{{ n }}{% endmacro %}{{ f(1000000) }}", "1000000"),
        ("{% filter upper %}abc{% endfilter %}", "ABC"),
        ("{{ '%s %05.1f 100%% 12345 *' % ('a', 3) }}", "a 003.0 100% 12345 *"),
        ("{{ '{a} {0:>3}'.format('z', a=1) }}", "1   z"),
        ("{{ '{x}'.format_map({'x': 3}) }}", "3"),
        ("{{ '{0.__class__}'.format('z') }}", ""),
        ("{{ 2 ** -1 }} {{ 2 ** 10 }} {{ 7 % 4 }}", "0.5 1024 3"),
        ("{{ [1] + [2] }} {{ 'ab' * 2 }}", "[1, 2] abab"),
        ("{{ 'a' ~ 1 ~ none }}", "a1None"),
    ],
)  # fmt: skip
def test_whatever_ends_is_rendered_as_jinja_does(source: str, text: str) -> None:
    assert render(source, xs=["a", "b"]) == text


def test_every_rendering_has_a_budget_of_its_own() -> None:
    template = BudgetedEnvironment().from_string("{% for i in range(9999) %}{% endfor %}")
    assert [template.render() for _ in range(5)] == [""] * 5
