"""Tool calls that a model writes as text: which forms are read, and what is left alone."""

import json
import time
from typing import Any

import pytest

from openmanus_graph.conversation.text_calls import holds_unread_call, read_text_calls

pytestmark = pytest.mark.slow

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
    {
        "type": "function",
        "function": {
            "name": "python_execute",
            "parameters": {"properties": {"code": {"type": "string"}}, "required": ["code"]},
        },
    },
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
        "<|channel|>commentary to=functions.bash list the files",
        '<|tool_call>call:bash{command:<|"|>ls}<tool_call|>',
        "<function=bash><parameter=command>rm -rf /tmp/x",
        "<|tool_call_start|>[bash(command=ls -la)]<|tool_call_end|>",
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
        'bash\n{"command": "ls"}',
        '{"command": "ls -la"}',
        '```json\n{"command": "ls", "timeout_s": 5}\n```',
        "Next. <|tool_call_start|>bash ls",
        '<|message_model|>bash<|content_invoke_tool_json|>{"args": {"command": "ls"}}',
        ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="bash">]<]minimax[>[<command>ls'
        "]<]minimax[>[</command>]<]minimax[>[</invoke>",
        "<｜DSML｜bash>\n<｜DSML｜command>ls</｜DSML｜command>\n</｜DSML｜invoke>",
        "So: <｜tool▁calls▁begin｜>",
        "<tool_call>python_execute\n</tool_call>",
    ],
)
def test_a_call_in_a_form_that_is_not_read_is_seen(text: str) -> None:
    assert read(text) is None
    assert holds_unread_call(text, TOOLS)


@pytest.mark.parametrize(
    "text",
    [
        "The total is 42.",
        '{{"response": "Done."}}',
        "Llama writes <|python_tag|> before a call, and DeepSeek <｜tool▁sep｜>.",
        "The <|DSML| token is documentation.",
        "Such a call begins with `<|tool_call>call:bash{command:x}`.",
        "analysis to follow; call: me",
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


WHERE = ("bash", {"command": 'grep -n "a < b" x.c', "timeout_s": 12})


def dsml(bars: str = "｜", block: str = "tool_calls", space: str = "", quote: str = '"') -> str:
    """Return the call in DeepSeek's form."""

    def tag(name: str, end: str = "") -> str:
        return f"<{end}{bars}DSML{bars}{space}{name}>"

    def given(name: str, text: str, value: str) -> str:
        head = f"parameter name={quote}{name}{quote} string={quote}{text}{quote}"
        return f"{tag(head)}{value}{tag('parameter', '/')}"

    return "\n".join(
        [
            tag(block),
            tag(f"invoke name={quote}bash{quote}"),
            given("command", "true", str(WHERE[1]["command"])),
            given("timeout_s", "false", "12"),
            tag("invoke", "/"),
            tag(block, "/"),
        ]
    )


HARMONY = json.dumps(WHERE[1])
TO_BASH = "to=functions.bash"
KEYED = "\n".join(
    f"<X_key>{key}</X_key>\n<X_value>{value}</X_value>" for key, value in WHERE[1].items()
)
STEPTML = "".join(
    f'<steptml:parameter name="{key}">{value}</steptml:parameter>'
    for key, value in WHERE[1].items()
)
PYTHON = "bash(command='grep -n \"a < b\" x.c', timeout_s=12)"
GEMMA = 'call:bash{command:Qgrep -n "a < b" x.cQ,timeout_s:12}'
FORMS = {
    "DSML of V3.2": dsml(block="function_calls"),
    "DSML of V4": dsml() + "<｜end▁of▁sentence｜>",
    "DSML of V4.1": dsml(block="calls", space=" "),
    "DSML with plain bars": dsml("|"),
    "DSML with two bars": dsml("｜｜", "calls", " "),
    "DSML with a double bar": dsml("‖"),
    "DSML with spaces": dsml(" | ", "tool_use"),
    "DSML with typographic marks": dsml()
    .replace('name="', "name=“")
    .replace('" string', "” string"),
    "DSML without its block": "\n".join(dsml().splitlines()[1:-1]),
    "DSML that is not closed": "\n".join(dsml().splitlines()[:-1]),
    "DSML without DSML": dsml("", "function_calls").replace("DSML", ""),
    "DSML with JSON": f'<｜DSML｜tool_calls>\n<｜DSML｜invoke name="bash">\n{HARMONY}\n'
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    "Gemma 4": "<|tool_call>" + GEMMA.replace("Q", '<|"|>') + "<tool_call|><turn|>",
    "Gemma 4 without special tokens": GEMMA.replace("Q", '<|"|>'),
    "FunctionGemma": f"<start_function_call>{GEMMA.replace('Q', '<escape>')}<end_function_call>",
    "Gemini": f"<ctrl42>{GEMMA.replace('Q', '<ctrl46>').replace('call:', 'call:default_api:')}",
    "Gemini's code": f"<ctrl42>call\nprint(default_api.{PYTHON})",
    "tool_code": f"```tool_code\nprint(default_api.{PYTHON})\n```",
    "harmony": f"<|channel|>commentary {TO_BASH} <|constrain|>json<|message|>{HARMONY}<|call|>",
    "harmony by role": f"<|start|>assistant {TO_BASH}<|channel|>commentary<|message|>{HARMONY}",
    "harmony in the analysis": f"<|channel|>analysis {TO_BASH} code<|message|>{HARMONY}<|end|>",
    "harmony's first message": f" to=functions.bash<|channel|>commentary json<|message|>{HARMONY}",
    "harmony in lines": "<|channel|>commentary to=functions.bash\n<|constrain|>json\n<|message|>"
    f"{HARMONY}\n<|call|>",
    "harmony without special tokens": f"commentary to=functions.bash json{HARMONY}",
    "harmony glued together": f"assistantcommentary to=functions.bashjson{HARMONY}",
    "Llama's built-in tools": f"<|python_tag|>{PYTHON.replace('bash', 'bash.call')}<|eom_id|>",
    "Llama 4": f"<|python_start|>[{PYTHON}]<|python_end|><|eot|>",
    "LFM2": f"<|tool_call_start|>[{PYTHON}]<|tool_call_end|><|im_end|>",
    "Olmo 3": f"<function_calls>\n{PYTHON}\n</function_calls>",
    "Step-3": "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>"
    f'<steptml:invoke name="bash">{STEPTML}</steptml:invoke>'
    "<｜tool_call_end｜><｜tool_calls_end｜>",
    "Hunyuan": f'<tool_calls>[{{"name": "bash", "arguments": {HARMONY}}}]</tool_calls>',
    "Hunyuan 3": f"<tool_call:opensource>bash<tool_sep:opensource>{HARMONY}"
    "<end_of_tool_call:opensource>",
    "Hunyuan 3 with keys": "<tool_call:opensource>bash<tool_sep:opensource>"
    + KEYED.replace("X_key", "arg_key:opensource").replace("X_value", "arg_value:opensource")
    + "<end_of_tool_call:opensource>",
    "LongCat": f'<longcat_tool_call>\n{{"name": "bash", "arguments": {HARMONY}}}\n'
    "</longcat_tool_call>",
    "LongCat with keys": f"<longcat_tool_call>bash\n{KEYED.replace('X_', 'longcat_arg_')}\n"
    "</longcat_tool_call>",
    "GLM": f"<tool_call>bash\n{KEYED.replace('X_', 'arg_')}\n</tool_call>",
    "Kimi K3": '<|open|>tools<|sep|><|open|>call tool="bash" index="0"<|sep|>'
    f'<|open|>argument key="command" type="string"<|sep|>{WHERE[1]["command"]}'
    '<|close|>argument<|sep|><|open|>argument key="timeout_s" type="number"<|sep|>12'
    "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
    "Seed": "<seed:tool_call>\n<function=bash>\n"
    '<parameter=command>grep -n "a < b" x.c</parameter>\n'
    "<parameter=timeout_s>12</parameter>\n</function>\n</seed:tool_call>",
    "doubled braces": "".join(
        2 * one if one in "{}" else one for one in f'{{"name": "bash", "arguments": {HARMONY}}}'
    ),
    "Python's marks": repr({"name": "bash", "arguments": WHERE[1]}),
    "commas at the end": f'{{"name": "bash", "arguments": {HARMONY[:-1]},}},}}',
    "the last brace is missing": f'<tool_call>{{"name": "bash", "arguments": {HARMONY}</tool_call>',
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_read_alone_and_behind_a_sentence(form: str) -> None:
    text = FORMS[form]
    assert read(text) == ("", [WHERE])
    if not text.startswith(("{", "commentary", "assistant", " to", "call")):
        assert read(f"I look for it.\n{text}") == ("I look for it.", [WHERE])


@pytest.mark.parametrize(
    "form", [one for one in FORMS if FORMS[one].startswith(("<", "{")) and "not closed" not in one]
)
def test_a_form_that_breaks_off_is_never_a_shorter_call(form: str) -> None:
    text = FORMS[form]
    for length in range(len(text)):
        _, calls = read(text[:length]) or ("", [])
        for _, args in calls:
            assert args is None or args.items() <= WHERE[1].items(), length
        if calls == []:
            assert "x.c" not in text[:length] or holds_unread_call(text[:length], TOOLS), length


@pytest.mark.parametrize(
    "form", [one for one in FORMS if FORMS[one].startswith("<") and "Kimi" not in one]
)
def test_several_calls_of_a_form_are_read(form: str) -> None:
    assert read(f"{FORMS[form]}\n{FORMS[form]}") == ("", [WHERE] * 2)


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ('"""import csv\nprint("a\\nb")\n"""', 'import csv\nprint("a\\nb")\n'),
        ('"""print(1)\\nprint(2)"""', "print(1)\nprint(2)"),
        ('"""say(\\"x\\")\nend()"""', 'say("x")\nend()'),
        ("'''print('x')\nend()'''", "print('x')\nend()"),
        (r'"re.sub(\".\", \"\d+\.\")"', r're.sub(".", "\d+\.")'),
        (r'"open(\"C:\path\")"', 'open("C:\\path")'),
        (r'"it\'s"', "it's"),
        ('"one\ntwo"', "one\ntwo"),
    ],
)
def test_json_with_faults_that_lose_nothing_is_read(written: str, code: str) -> None:
    text = f'{{"name": "python_execute", "arguments": {{"code": {written}}}}}'
    assert read(text) == ("", [("python_execute", {"code": code})])
    assert read(f"```json\n{text}\n```") == ("", [("python_execute", {"code": code})])


@pytest.mark.parametrize(
    "arguments",
    [
        '{"command": "echo "a" b"}',
        '{"command": "rm -rf /tmp/x',
        '{"command": """rm -rf /tmp/x}',
        '{"command": "a" "timeout_s": 1}',
    ],
)
def test_json_that_leaves_a_doubt_is_not_read(arguments: str) -> None:
    text = f'<tool_call>{{"name": "bash", "arguments": {arguments}}}</tool_call>'
    assert read(text) == ("", [("bash", None)])


def test_a_value_may_hold_calls_and_the_ends_of_its_own() -> None:
    code = f"# </parameter> and <function=bash>, or <tool_call>{LS}</tool_call>\nprint(1)"
    text = (
        f"<tool_call>\n<function=python_execute>\n<parameter=code>\n{code}\n</parameter>\n"
        "</function>\n</tool_call>"
    )
    assert read(text) == ("", [("python_execute", {"code": code})])


@pytest.mark.parametrize(
    "begun",
    [
        "",
        "<tool_call>",
        "<function=bash><parameter=command>",
        "<function_calls>bash(",
        "call:bash{",
    ],
)
@pytest.mark.parametrize(
    "piece",
    [
        "<", "< ", "<｜DSML｜", "</parameter>", "</tool_call>", "<function=bash>", "{", '"', '"\\',
        "'", '"""', "(", " ", "\n", "\\n", "assistant ", "commentary to=", "a.", "x<arg_key>", "`",
        "</arg_value>", "call:bash{", "```tool_code\n", ";", '<|"|>', "[1,", "{'a':", "<|channel|>",
    ],
)  # fmt: skip
def test_any_text_is_read_in_linear_time(begun: str, piece: str) -> None:
    text = begun + piece * (60_000 // len(piece)) + "x"
    started = time.process_time()
    read_text_calls(text, TOOLS)
    holds_unread_call(text, TOOLS)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "text", ['[python_execute(code={{"a": 1}})]', "[bash(command={[1]: 2})]", "[bash(command={3})]"]
)
def test_python_that_has_no_value_is_no_call(text: str) -> None:
    assert read(text) is None


def test_a_tool_of_the_provider_s_own_is_passed_over() -> None:
    assert read_text_calls(f"<tool_call>{LS}</tool_call>", [{"type": "web_search"}, *TOOLS])
