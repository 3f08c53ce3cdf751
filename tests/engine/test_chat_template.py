"""A chat template renders as transformers renders it, inside a sandbox, within bounds."""

from __future__ import annotations

from typing import Any

import pytest

from tessella.core.completions import MAX_MESSAGES
from tessella.core.errors import BadRequest, BadWeights, UnsupportedField
from tessella.core.tool_calls import ToolFormat
from tessella.engine import chat_template, template_budget
from tessella.engine.chat_template import ChatTemplate

HI = [{"role": "user", "content": "Hi <b>"}]


def render(source: str, messages: Any = HI, *, ask: bool = True, tools: Any = ()) -> str:
    return ChatTemplate(source).render(
        messages, tools=tools, add_generation_prompt=ask, special_tokens={"bos_token": "<s>"}
    )


# Each in the style of a family, with what it demands of a conversation.
ALTERNATING = (
    "{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}"
    "{% endif %}"
)
GEMMA = (
    "{{ bos_token }}"
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}"
    + ALTERNATING
    + "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
# Passes over whatever is neither a user's nor an assistant's.
SILENT = (
    "{% for m in messages %}"
    "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% elif m.role == 'assistant' %}{{ m.content }}</s>{% endif %}{% endfor %}"
)
LLAMA_2 = (
    "{% if messages[0].role == 'system' %}"
    "{% set system = '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' %}"
    "{% set messages = messages[1:] %}{% endif %}" + ALTERNATING + "{% if m.role == 'user' %}"
    "{{ bos_token }}[INST] {{ system if loop.first }}{{ m.content }} [/INST]"
    "{% else %}{{ ' ' + m.content }}</s>{% endif %}{% endfor %}"
)
CHATML_TOOLS = """
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{% endif %}
    {{- '<tools>' }}
    {%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{% endfor %}
    {{- '\n</tools>\nAnswer with <tool_call>{"name": …, "arguments": …}</tool_call><|im_end|>\n' }}
{%- endif %}
{%- for m in messages %}
    {%- if m.role == 'assistant' and m.tool_calls %}
        {{- '<|im_start|>assistant' }}
        {%- for call in m.tool_calls %}
            {{- '\n<tool_call>\n{"name": "' ~ call.function.name ~ '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif m.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>\n' + m.content + '\n</tool_response><|im_end|>\n' }}
    {%- elif not (tools and loop.first and m.role == 'system') %}
        {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}
"""
LLAMA_3_TOOLS = """
{{- bos_token }}
{%- if not tools is defined %}{% set tools = none %}{% endif %}
{%- if tools is not none %}
    {{- 'Respond in the format {"name": function name, "parameters": dictionary of arguments}.' }}
    {%- for tool in tools %}{{- tool | tojson(indent=4) }}{% endfor %}
{%- endif %}
{%- for m in messages %}
    {%- if 'tool_calls' in m %}
        {%- if m.tool_calls | length != 1 %}
            {{- raise_exception('This model only supports single tool-calls at once!') }}
        {%- endif %}
        {%- set call = m.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
        {{- '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}' }}
        {{- '<|eot_id|>' }}
    {%- else %}
        {%- set role = 'ipython' if m.role == 'tool' else m.role %}
        {{- '<|start_header_id|>' + role + '<|end_header_id|>\n\n' + m.content + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
"""
MISTRAL_TOOLS = """
{{- bos_token }}
{%- if tools is not none %}
    {{- '[AVAILABLE_TOOLS]' + tools | tojson + '[/AVAILABLE_TOOLS]' }}
{%- endif %}
{%- for m in messages %}
    {%- if m.tool_calls is defined and m.tool_calls is not none %}
        {{- '[TOOL_CALLS][' }}
        {%- for call in m.tool_calls %}
            {%- if call.id | length != 9 %}
                {{- raise_exception('Tool call IDs should be 9 characters long!') }}
            {%- endif %}
            {{- call.function | tojson }}{{- ', ' if not loop.last }}
        {%- endfor %}
        {{- ']</s>' }}
    {%- elif m.role == 'tool' %}
        {{- '[TOOL_RESULTS]{"content": ' + m.content ~ ', "call_id": "' + m.tool_call_id + '"}' }}
    {%- elif m.role == 'user' %}{{- '[INST]' + m.content + '[/INST]' }}
    {%- endif %}
{%- endfor %}
"""
NO_TOOLS = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{# no tools #}"
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALLED: list[dict[str, Any]] = [
    {"role": "user", "content": "1 and 2?", "name": "", "tool_calls": (), "tool_call_id": ""},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": ({"id": "abcdefghi", "name": "add", "arguments": '{"a": [1, 2]}'},),
    },
    {"role": "tool", "content": "3", "tool_call_id": "abcdefghi"},
]


def say(*turns: str) -> list[dict[str, str]]:
    """Messages written as `role: content`."""
    pairs = (turn.split(": ", 1) for turn in turns)
    return [{"role": role, "content": content} for role, content in pairs]


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


TOO_DEEP = "{% for a in b %}" * 30 + "{% endfor %}" * 30


@pytest.mark.parametrize("source", ["{% if %}", "{{ 'open", "{% unknown %}", TOO_DEEP])
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
        ([{"role": "user", "content": "x", "name": 3}], r"messages\[0\].name must be a string"),
        ([{"role": "user"}], r"messages\[0\].content"),
        ([*HI, {"role": "user", "content": None}], r"messages\[1\].content"),
        ([{"role": 3, "content": "x"}], r"messages\[0\].role"),
        ([{"role": "user", "content": ["x"]}], r"messages\[0\].content"),
    ],
)
def test_a_message_without_text_is_named(messages: list[Any], named: str) -> None:
    with pytest.raises(BadRequest, match=named):
        render("", messages)


@pytest.mark.parametrize("source", [GEMMA, SILENT])
def test_a_system_message_without_a_place_is_said_by_the_first_user(source: str) -> None:
    told = say("system:  Be brief. ", "user: Hi", "assistant: Yes?", "user: Bye")
    asked = say("user: Be brief.\n\nHi", "assistant: Yes?", "user: Bye")
    assert render(source, told) == render(source, asked)


@pytest.mark.parametrize("source", [GEMMA, SILENT])
def test_an_empty_system_message_without_a_place_is_left_out(source: str) -> None:
    assert render(source, say("system: ", "user: Hi")) == render(source, say("user: Hi"))


def test_a_system_message_with_a_place_stays_there() -> None:
    assert (
        render(LLAMA_2, say("system: S", "user: U"))
        == "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST]"
    )


def test_a_system_message_is_not_taken_for_said_because_another_holds_its_words() -> None:
    told = say("system: Hi", "user: Hi there")
    assert render(SILENT, told) == "[INST] Hi\n\nHi there [/INST]"


@pytest.mark.parametrize(
    ("source", "messages", "said"),
    [
        (GEMMA, say("user: a", "user: b"), "Conversation roles must alternate user/assistant"),
        (LLAMA_2, say("user: a", "user: b"), "Conversation roles must alternate user/assistant"),
        (LLAMA_2, say("system: s", "user: a", "user: b"), "Conversation roles must alternate"),
        (GEMMA, say("system: s", "user: a", "user: b"), "System role not supported"),
        (GEMMA, say("system: s"), "System role not supported"),
        (SILENT, say("system: s", "assistant: a"), "it has no place for a system message"),
        (
            MISTRAL_TOOLS,
            [{**CALLED[1], "tool_calls": [{"id": "1", "name": "f", "arguments": ""}]}],
            "9",
        ),
    ],
)
def test_a_conversation_that_the_template_refuses_is_refused_in_its_words(
    source: str, messages: Any, said: str
) -> None:
    with pytest.raises(BadRequest, match=f"^chat template: .*{said}"):
        render(source, messages)


def test_a_refusal_is_one_short_printable_line() -> None:
    with pytest.raises(BadRequest) as raised:
        render("{{ raise_exception('a\n\x1b[2Jb' ~ 'x' * 9999) }}")
    assert str(raised.value).startswith("chat template: a [2Jbxxx")
    assert len(str(raised.value)) < chat_template.MAX_REFUSAL_CHARS + 20


@pytest.mark.parametrize(
    ("source", "prompt"),
    [
        (
            CHATML_TOOLS,
            '<tool_call>\n{"name": "add", "arguments": {"a": [1, 2]}}\n</tool_call><|im_end|>\n'
            "<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        (
            LLAMA_3_TOOLS,
            '{"name": "add", "parameters": {"a": [1, 2]}}<|eot_id|>'
            "<|start_header_id|>ipython<|end_header_id|>\n\n3<|eot_id|>",
        ),
        (
            MISTRAL_TOOLS,
            '[TOOL_CALLS][{"name": "add", "arguments": {"a": [1, 2]}}]</s>'
            '[TOOL_RESULTS]{"content": 3, "call_id": "abcdefghi"}',
        ),
    ],
)
def test_calls_and_what_they_gave_reach_the_template_as_it_expects(
    source: str, prompt: str
) -> None:
    rendered = render(source, CALLED, tools=TOOLS)
    assert rendered.endswith(prompt)
    assert '"name": "add"' in rendered.removesuffix(prompt)
    assert "1 and 2?" in rendered


@pytest.mark.parametrize(
    ("source", "format"),
    [
        (CHATML_TOOLS, ToolFormat.HERMES),
        (LLAMA_3_TOOLS, ToolFormat.LLAMA),
        (MISTRAL_TOOLS, ToolFormat.MISTRAL),
        ("{% for tool in tools %}{{ tool }}{% endfor %}", None),
    ],
)
def test_a_template_with_tools_says_how_they_are_called(
    source: str,
    format: ToolFormat | None,  # noqa: A002
) -> None:
    assert ChatTemplate(source).supports_tools
    assert ChatTemplate(source).tool_format is format


@pytest.mark.parametrize("source", [NO_TOOLS, GEMMA, "{{ '<tool_call>' }}", "{% if %}"])
def test_a_template_without_tools_takes_none(source: str) -> None:
    template = ChatTemplate(source)
    assert (template.supports_tools, template.tool_format) == (False, None)
    with pytest.raises(UnsupportedField, match="tools: the chat template of this model"):
        render(source, tools=TOOLS)


def test_a_template_of_its_own_for_tools_is_used_for_them_alone() -> None:
    template = ChatTemplate("plain", tool_source=CHATML_TOOLS)
    assert (template.supports_tools, template.tool_format) == (True, ToolFormat.HERMES)
    asked: Any = {"add_generation_prompt": False, "special_tokens": {}}
    assert template.render(HI, **asked) == "plain"
    assert "<tools>" in template.render(HI, tools=TOOLS, **asked)
    with pytest.raises(BadWeights):
        ChatTemplate("plain", tool_source="{% if %}").compile()


def test_the_longest_conversation_of_a_request_is_within_the_steps() -> None:
    messages = [CALLED[place % 3] for place in range(MAX_MESSAGES)]
    prompt = render(CHATML_TOOLS, messages, tools=TOOLS)
    assert prompt.count("<|im_start|>") == MAX_MESSAGES + 2


def test_a_template_that_goes_on_and_on_is_a_bad_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_budget, "MAX_STEPS", 1000)
    with pytest.raises(BadRequest, match="chat template: it takes more than 1000 steps"):
        render("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}")
