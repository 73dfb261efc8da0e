"""Tool calls that a model writes as text: which forms are read, and what is left alone."""

import json
from typing import Any

import pytest

from openmanus_graph.conversation.text_calls import holds_unread_call, read_text_calls

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "bash",
            "parameters": {
                "properties": {"command": {"type": "string"}, "timeout_s": {"type": "integer"}}
            },
        },
    },
    {"type": "function", "function": {"name": "read_file", "parameters": {}}},
]
LS = json.dumps({"name": "bash", "arguments": {"command": "ls"}})


def read(text: str) -> tuple[str, list[tuple[str, Any]]] | None:
    found = read_text_calls(text, TOOLS)
    return None if found is None else (found[0], [(call.name, call.args) for call in found[1]])


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{LS}</tool_call>",
        f"<tool_call>\n{LS}\n</tool_call><|im_end|>",
        f"<tool_call>{LS}",
        '<function=bash>{"command": "ls"}</function>',
        "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>",
        f"[TOOL_CALLS] [{LS}]",
        f"[TOOL_CALLS]{LS}</s>",
        '[TOOL_CALLS]bash[ARGS]{"command": "ls"}',
        '<|python_tag|>{"name": "bash", "parameters": {"command": "ls"}}<|eom_id|>',
        '<function_calls><invoke name="bash"><parameter name="command">ls</parameter></invoke>'
        "</function_calls>",
        "<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>",
        '<tool_call>bash\n{"command": "ls"}\n</tool_call>',
        f"<TOOLCALL>[{LS}]</TOOLCALL>",
        f"<|tool_call|>[{LS}]<|/tool_call|>",
        '<minimax:tool_call><invoke name="bash"><parameter name="command">ls</parameter></invoke>'
        "</minimax:tool_call>",
        f"```function_call\r\n{LS}\r\n```",
        f"```json\n{LS}\n```",
        f"```\n{LS}\n```",
        f"```json\n<tool_call>{LS}</tool_call>\n```",
        f"```xml\n<tool_call>\n{LS}\n</tool_call>\n```",
        LS,
        f"[{LS}]",
        json.dumps({"function": {"name": "bash", "arguments": '{"command": "ls"}'}}),
        '{"action": "bash", "action_input": {"command": "ls"}}',
        f'{{"tool_calls": [{LS}]}}',
        f"functools[{LS}]",
        f"<TOOL_CALL>{LS}</TOOL_CALL></think>",
        f"<tool_call>\n```json\n{LS}\n```\n</tool_call>",
        '<function name="bash">{"command": "ls"}</function>',
        '[TOOL_CALLS]bash[CALL_ID]abcdefghi[ARGS]{"command": "ls"}',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>bash\n```json\n"
        '{"command": "ls"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>bash<｜tool▁sep｜>{"command": "ls"}'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.bash:0"
        '<|tool_call_argument_begin|>{"command": "ls"}<|tool_call_end|><|tool_calls_section_end|>',
        '[bash(command="ls")]',
        'bash("ls")',
        '<|python_start|>[bash(command="ls")]<|python_end|><|eot|>',
        '```tool_code\nprint(bash(command="ls"))\n```',
    ],
)
def test_the_common_forms_are_read(text: str) -> None:
    assert read(text) == ("", [("bash", {"command": "ls"})])


def test_text_before_the_calls_is_kept_and_several_are_read() -> None:
    two = f"I look first.\n<tool_call>{LS}</tool_call>\n<tool_call>{LS}</tool_call>"
    assert read(two) == ("I look first.", [("bash", {"command": "ls"})] * 2)
    for text in (f"{LS};{LS}", f"{LS}\n{LS}", '[bash(command="ls"), bash(command="ls")]'):
        assert read(text) == ("", [("bash", {"command": "ls"})] * 2)
    assert read(f"I look first.\n{LS}") == ("I look first.", [("bash", {"command": "ls"})])
    assert read(f"<|python_tag|>{LS}; {LS}") == ("", [("bash", {"command": "ls"})] * 2)


def test_values_in_tags_get_the_type_that_the_schema_wants() -> None:
    text = (
        "<function=bash><parameter=command>\n[1, 2]\n</parameter>"
        "<parameter=timeout_s>5</parameter></function>"
    )
    assert read(text) == ("", [("bash", {"command": "[1, 2]", "timeout_s": 5})])


def test_a_call_of_a_tool_that_is_not_there_is_one_where_a_mark_says_so() -> None:
    assert read('<tool_call>{"name": "shell", "arguments": {}}</tool_call>') == (
        "",
        [("shell", {})],
    )
    assert read('```json\n{"name": "shell", "arguments": {}}\n```') is None


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "bash", "arguments": {"command": "ls}</tool_call>',
        '<tool_call>{"name": "bash", "arguments": {"comm',
        '<function=bash>{"command": "ls}</function>',
    ],
)
def test_a_call_that_cannot_be_read_is_a_broken_one(text: str) -> None:
    assert read(text) == ("", [("bash", None)])


@pytest.mark.parametrize(
    "text",
    [
        f"Models write `<tool_call>{LS}</tool_call>` to call a tool.",
        f"An example:\n```xml\n<tool_call>{LS}</tool_call>\n```",
        f"An example:\n```json\n{LS}\n```",
        f"By <tool_call>{LS}</tool_call> a model of that family calls a tool.",
        "<tool_call> is the tag by which such models begin a call.",
        "Mistral begins with [TOOL_CALLS] [see the manual].",
        '{"name": "Ada", "arguments": {"age": 36}}',
        '{"name": "bash"}',
        "[1, 2, 3]",
        f"The page says:\n> <tool_call>{LS}</tool_call>",
        f"An example:\n\n    <tool_call>{LS}</tool_call>",
        '{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}',
        "Such models begin with <function=foo>",
        "The total is 42.",
    ],
)
def test_what_an_answer_quotes_is_no_call(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{LS}</tool_call>\nI wait for the result.",
        f"<tool_call>{LS}</tool_call>\n<tool_response>a.txt</tool_response>\nThere is a.txt.",
        f"I list the files.\n```json\n{LS}\n```",
        f"I list them.\n```xml\n<tool_call>{LS}</tool_call>\n```",
        'Thought: list them\nAction: bash\nAction Input: {"command": "ls"}',
        "<bash>\n<command>ls</command>\n</bash>",
        '<tool>bash</tool><args>{"command": "ls"}</args>',
        '<|channel|>commentary to=functions.bash <|constrain|>json<|message|>{"command": "ls"}',
        '<｜DSML｜invoke name="bash">\n<｜DSML｜parameter name="command" string="true">ls'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>",
        'bash\n{"command": "ls"}',
        '{"command": "ls -la"}',
        '```json\n{"command": "ls", "timeout_s": 5}\n```',
        "<tool_call>bash\n</tool_call>",
        "<start_function_call>call:bash{command:<escape>ls<escape>}<end_function_call>",
    ],
)
def test_a_call_in_a_form_that_is_not_read_is_seen(text: str) -> None:
    assert read(text) is None
    assert holds_unread_call(text, TOOLS)


@pytest.mark.parametrize(
    "text",
    [
        "The total is 42.",
        f"By <tool_call>{LS}</tool_call> a model of that family calls a tool.",
        f"Models write `<tool_call>{LS}</tool_call>`",
        'Say `bash {"command": "ls"}`',
        "I used bash and the command `ls` (see above)",
        'def bash(command):\n    return {"bash": command}',
        '```python\nresult = bash(command="ls")\n```',
        '{"bash": "a shell", "read_file": "reads", "commands": []}',
        '{"command": "ls", "why": "it lists the files"}',
        "{}",
        '{"name": "bash", "parameters": {"type": "object", "properties": {"command": {}}}}',
    ],
)
def test_what_makes_no_call_is_left_alone(text: str) -> None:
    assert read(text) is None
    assert not holds_unread_call(text, TOOLS)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "<tool_call>" + "[" * 100_000, "<function=bash>" + '{"a":' * 20_000]
)
def test_what_is_nested_too_deeply_is_no_readable_call(text: str) -> None:
    assert read(text) in (None, ("", [("bash", None)]))


def test_a_value_may_hold_the_tags_that_end_it() -> None:
    code = 'print("</parameter></function>")'
    text = f"<function=bash><parameter=command>{code}</parameter></function>"
    assert read(text) == ("", [("bash", {"command": code})])
    assert read(f"{text}\n{text}") == ("", [("bash", {"command": code})] * 2)
