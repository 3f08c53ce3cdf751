"""What one rendering of a chat template may cost: its steps, and the text it writes.

Jinja's sandbox keeps a template away from the machine, not from its time and memory. Here steps are
counted where a template can repeat itself: in loops, in calls, and by the size of what filters walk
through. Single operations that make something long are bounded by their numbers. What is not
counted is what Python does inside one operation on a list that holds itself many times over.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sized
from functools import wraps
from types import BuiltinMethodType
from typing import TypeVar

import jinja2
from jinja2 import nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter

from tessella.core.tensors import MIB

# Some seconds of Python. The longest conversation that a request holds takes some tenths of it.
MAX_STEPS = 2_000_000
# Characters, wherever they go: what a macro writes is written again by whoever calls it.
MAX_WRITTEN_CHARS = 32 * MIB
# Characters of a text, elements of a list. A whole request has 4 MiB.
MAX_SIZE = 8 * MIB
# Columns, digits, repetitions.
MAX_COUNT = 100_000
# Far beyond dates and sizes.
MAX_NUMBER_BITS = 4096
# What takes about the time of a step: so many parts of what a loop or a macro repeats, and so many
# elements or characters for a filter. A call takes that of several.
NODES_OF_STEP, ELEMENTS_OF_STEP, CHARS_OF_STEP = 8, 2, 1024
CALL_STEPS = 5

# Filters with a number that says how long or how many.
_COUNTING = ("batch", "center", "indent", "round", "slice", "truncate", "wordwrap")
_WIDE_FIELD = re.compile(r"\d{5}")
_WIDE_PERCENT = re.compile(r"%[^%A-Za-z]*(\d{5}|\*)")

_T = TypeVar("_T")


class TooMuch(jinja2.TemplateError):
    """The template went on for longer than any conversation needs."""


class Budget:
    """What is left of one rendering. Raises TooMuch when it is spent."""

    def __init__(self) -> None:
        self.steps = MAX_STEPS
        self.chars = MAX_WRITTEN_CHARS

    def step(self, steps: int) -> None:
        """A loop goes round, or something is called."""
        self.steps -= steps
        if self.steps < 0:
            raise TooMuch(f"it takes more than {MAX_STEPS} steps")

    def write(self, chars: int) -> None:
        """Text is written."""
        self.chars -= chars
        if self.chars < 0:
            raise TooMuch(f"it writes more than {MAX_WRITTEN_CHARS} characters")


class _Context(Context):
    """The values of one rendering, and its budget."""

    budget: Budget

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # Jinja's business
        self.budget = Budget()

    def derived(self, locals: dict[str, object] | None = None) -> Context:  # noqa: A002  # Jinja's
        context = super().derived(locals)
        if isinstance(context, _Context):
            context.budget = self.budget
        return context


class _Generator(CodeGenerator):
    """Jinja's compiler, with all text counted that the compiled template writes."""

    def _output_const_repr(self, group: Iterable[object]) -> str:
        return f"environment.written(context, {super()._output_const_repr(group)})"

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        """`a ~ b`: each part is counted before they are joined."""
        self.write("str_join((")
        for part in node.nodes:
            self.write("environment.written(context, ")
            self.visit(part, frame)
            self.write("), ")
        self.write("))")


class BudgetedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox for one template, in which every rendering has a budget of its own."""

    code_generator_class = _Generator
    context_class = _Context
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, extensions: Iterable[str | type[jinja2.ext.Extension]] = ()) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=list(extensions))
        self._all_steps = 0
        self._macro_steps: dict[str, int] = {}
        self.finalize = self.written
        self.binop_table |= {"+": _add, "*": _multiply, "**": _power, "%": _format}
        for name in _COUNTING:
            self.filters[name] = counting(self.filters[name])
        # They make text by the number, and none of it belongs in a prompt.
        del self.filters["format"], self.globals["lipsum"]

    def _generate(self, source: nodes.Template, *args: object, **kwargs: object) -> str:
        self._all_steps = _steps(source)
        for macro in source.find_all((nodes.Macro, nodes.CallBlock)):
            name = macro.name if isinstance(macro, nodes.Macro) else "caller"
            self._macro_steps[name] = max(_steps(macro), self._macro_steps.get(name, 0))
        for loop in source.find_all(nodes.For):
            loop.iter = _through("counted", loop.iter, nodes.Const(_steps(loop)))
        for each in source.find_all(nodes.Filter):
            # A filter-block has no value before its text is written.
            if each.node is not None:
                each.node = _through("weighed", each.node)
        return super()._generate(source, *args, **kwargs)  # type: ignore[arg-type]

    def call(self, context: Context, called: object, /, *args: object, **kwargs: object) -> object:
        """Whatever a template calls: a macro, a method, the next round of a recursive loop."""
        _budget(context).step(CALL_STEPS + self._steps_of(called))
        if isinstance(called, LoopContext):
            args = tuple(self.counted(context, each, self._all_steps) for each in args)  # type: ignore[arg-type]
        elif isinstance(called, BuiltinMethodType) and not isinstance(called.__self__, dict):
            _check_counts((*args, *kwargs.values()))
        return super().call(context, called, *args, **kwargs)

    def _steps_of(self, called: object) -> int:
        if isinstance(called, Macro):
            return self._macro_steps.get(called.name, self._all_steps)
        return self._all_steps if isinstance(called, LoopContext | BlockReference) else 0

    @staticmethod
    @pass_context
    def counted(context: Context, values: Iterable[_T], steps: int) -> Iterator[_T]:
        """What a loop goes through; a turn takes that many steps."""
        step = _budget(context).step
        for value in values:
            step(steps)
            yield value

    @staticmethod
    @pass_context
    def weighed(context: Context, value: _T) -> _T:
        """What a filter may walk through, as steps by its size."""
        if isinstance(value, str):
            _budget(context).step(len(value) // CHARS_OF_STEP)
        elif isinstance(value, list | tuple | dict | range):
            _budget(context).step(len(value) // ELEMENTS_OF_STEP)
        return value

    @staticmethod
    @pass_context
    def written(context: Context, value: object) -> str:
        """The text that a value is written as."""
        text = str(value)
        _budget(context).write(len(text))
        return text

    def wrap_str_format(self, value: object) -> Callable[..., str] | None:
        """`str.format` as templates get it: no reach beyond the sandbox, no endless fields."""
        if super().wrap_str_format(value) is None:
            return None
        formatter, mapped = _Formatter(self), getattr(value, "__name__", "") == "format_map"
        text = str(getattr(value, "__self__", ""))

        def wrapper(*args: object, **kwargs: object) -> str:
            made: str = formatter.vformat(text, *(((), args[0]) if mapped else (args, kwargs)))
            return made

        return wrapper


class _Formatter(SandboxedFormatter):
    def format_field(self, value: object, format_spec: str) -> str:
        _check_width(_WIDE_FIELD, format_spec)
        return str(super().format_field(value, format_spec))


def counting(function: Callable[..., _T]) -> Callable[..., _T]:
    """A filter that takes no large number beside the value it is applied to."""
    own = 2 if hasattr(function, "jinja_pass_arg") else 1

    @wraps(function)
    def checked(*args: object, **kwargs: object) -> _T:
        _check_counts((*args[own:], *kwargs.values()))
        return function(*args, **kwargs)

    return checked


def _through(method: str, *values: nodes.Node) -> nodes.Expr:
    function = nodes.EnvironmentAttribute(method)
    return nodes.Call(function, list(values), [], None, None, lineno=values[0].lineno)


def _steps(repeated: nodes.Node) -> int:
    return 1 + sum(1 for _ in repeated.find_all(nodes.Node)) // NODES_OF_STEP


def _budget(context: Context) -> Budget:
    if not isinstance(context, _Context):
        raise TooMuch("it left its context")
    return context.budget


def _check_counts(values: Iterable[object]) -> None:
    for value in values:
        if isinstance(value, int) and abs(value) > MAX_COUNT:
            raise TooMuch(f"it counts to more than {MAX_COUNT}")


def _check_width(wide: re.Pattern[str], text: str) -> None:
    if wide.search(text):
        raise TooMuch("it formats a field of tens of thousands of columns")


def _check_size(size: int) -> None:
    if size > MAX_SIZE:
        raise TooMuch(f"it makes a value of more than {MAX_SIZE} characters or elements")


def _check_bits(bits: int) -> None:
    if bits > MAX_NUMBER_BITS:
        raise TooMuch(f"it makes a number of more than {MAX_NUMBER_BITS} bits")


def _add(left: object, right: object) -> object:
    if isinstance(left, Sized) and isinstance(right, Sized):
        _check_size(len(left) + len(right))
    return operator.add(left, right)


def _multiply(left: object, right: object) -> object:
    for values, times in ((left, right), (right, left)):
        if isinstance(times, int):
            if isinstance(values, int):
                _check_bits(values.bit_length() + times.bit_length())
            elif isinstance(values, Sized):
                _check_size(len(values) * times)
    return operator.mul(left, right)


def _power(left: object, right: object) -> object:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * abs(right))
    return operator.pow(left, right)


def _format(left: object, right: object) -> object:
    if isinstance(left, str):
        _check_width(_WIDE_PERCENT, left.replace("%%", ""))
    return operator.mod(left, right)
