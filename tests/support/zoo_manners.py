"""How models write their replies: thoughts in fields and in texts, calls as text, odd ids."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from tests.support.openai_script import Call, Reply
from tests.support.zoo_rules import SIGNATURE

Manner = Callable[[Reply, int], Reply]
"""Changes a reply of the model; is given its number, counted from one."""
THOUGHT = "The person wants values; I must look them up, not guess."


def plain(reply: Reply, _: int) -> Reply:
    """Change nothing."""
    return reply


def thinks(field: str = "reasoning_content", *, each: bool = False) -> Manner:
    """Send thoughts in a field; not with each reply, as models do that think when they want."""

    def manner(reply: Reply, number: int) -> Reply:
        if not each and number % 2 == 0:
            return reply
        return replace(reply, reasoning=THOUGHT, reasoning_field=field)

    return manner


def with_ids(*forms: str) -> Manner:
    """Give calls ids of these forms in turn; `{n}` stands for a number of the call's own."""

    def manner(reply: Reply, number: int) -> Reply:
        form = forms[number % len(forms)]
        calls = (
            replace(call, id=form.format(n=10 * number + position, name=call.name))
            for position, call in enumerate(reply.calls)
        )
        return replace(reply, calls=tuple(calls))

    return manner


def both(*manners: Manner) -> Manner:
    """Do one after the other."""

    def manner(reply: Reply, number: int) -> Reply:
        for one in manners:
            reply = one(reply, number)
        return reply

    return manner


def signed(reply: Reply, _: int) -> Reply:
    """Sign the first call of a step, as Gemini 3 does."""
    if not reply.calls:
        return reply
    first, *others = reply.calls
    signature = {"extra_content": {"google": {"thought_signature": SIGNATURE}}}
    return replace(reply, calls=(replace(first, extra=signature), *others))


def thinks_in_text(before: str, after: str, end: str = "") -> Manner:
    """Write thoughts into the text, between two marks."""

    def manner(reply: Reply, _: int) -> Reply:
        return replace(reply, text=f"{before}{THOUGHT}{after}{reply.text}{end}")

    return manner


def half_a_thought(reply: Reply, number: int) -> Reply:
    """Write a thought that never ends, at first."""
    if number > 1:
        return reply
    return Reply(text="<think>\nThe answer may be A-1, but I should look", reasoning="")


def calls_in_text(form: Callable[[Call], str], before: str = "", after: str = "") -> Manner:
    """Write calls into the text, one after the other."""

    def manner(reply: Reply, _: int) -> Reply:
        if not reply.calls:
            return reply
        calls = "\n".join(map(form, reply.calls))
        return replace(reply, text=f"{reply.text}{before}{calls}{after}", calls=())

    return manner


def first_call_in_text(form: Callable[[Call], str]) -> Manner:
    """Write one call of a reply into the text."""
    whole = calls_in_text(form)

    def manner(reply: Reply, number: int) -> Reply:
        return whole(replace(reply, calls=reply.calls[:1]), number)

    return manner


def dsml(bars: str, gap: str = "", block: str = "tool_calls") -> Manner:
    """DeepSeek's form, with its bars or those that it is seen with."""

    def tag(name: str) -> str:
        return f"{bars}DSML{bars}{gap}{name}"

    def form(call: Call) -> str:
        args: Any = call.args
        lines = [f'<{tag("invoke")} name="{call.name}">']
        for key, value in args.items():
            text, is_text = (value, "true") if isinstance(value, str) else _json(value)
            lines.append(
                f'<{tag("parameter")} name="{key}" string="{is_text}">{text}</{tag("parameter")}>'
            )
        return "\n".join([*lines, f"</{tag('invoke')}>"])

    return calls_in_text(form, f"\n\n<{tag(block)}>\n", f"\n</{tag(block)}>")


def _json(value: object) -> tuple[str, str]:
    return json.dumps(value), "false"


def _python(call: Call, name: str = "") -> str:
    args: Any = call.args
    return f"{name or call.name}({', '.join(f'{key}={value!r}' for key, value in args.items())})"


def python_tag(call: Call) -> str:
    """Llama 3's form."""
    return f"<|python_tag|>{_python(call, f'{call.name}.call')}<|eom_id|>"


def tool_code(call: Call) -> str:
    """Gemini's form, and Gemma 3's."""
    return f"\n```tool_code\nprint({_python(call)})\n```"


def lfm(call: Call) -> str:
    """LFM2's form."""
    return f"<|tool_call_start|>[{_python(call)}]<|tool_call_end|>"


olmo = calls_in_text(_python, "<function_calls>\n", "\n</function_calls>")
"""Olmo 3's form: a call in each line."""


def step(call: Call) -> str:
    """Step-3's form."""
    args: Any = call.args
    given = "".join(
        f'<steptml:parameter name="{key}">{value if isinstance(value, str) else json.dumps(value)}'
        "</steptml:parameter>"
        for key, value in args.items()
    )
    invoke = f'<steptml:invoke name="{call.name}">{given}</steptml:invoke>'
    return _BARS.format(f"function<|tool_sep|>{invoke}").replace("|", "\uff5c")


_BARS = "<|tool_calls_begin|><|tool_call_begin|>{}<|tool_call_end|><|tool_calls_end|>"


def _plain_json(call: Call) -> str:
    return json.dumps({"name": call.name, "arguments": call.args})


def hunyuan(reply: Reply, number: int) -> Reply:
    """Hunyuan's form: a list."""
    whole = ", ".join(map(_plain_json, reply.calls))
    return calls_in_text(lambda _: f"<tool_calls>[{whole}]</tool_calls>")(
        replace(reply, calls=reply.calls[:1]), number
    )


def longcat(call: Call) -> str:
    """LongCat's form."""
    return f"<longcat_tool_call>\n{_plain_json(call)}\n</longcat_tool_call>"


def doubled_braces(call: Call) -> str:
    """What a model writes whose template shows it so."""
    return "\n" + _plain_json(call).replace("{", "{{").replace("}", "}}")


def gemma(call: Call) -> str:
    """Gemma 4's form."""
    return f"<|tool_call>call:{call.name}{_gemma_value(call.args)}<tool_call|>"


def function_gemma(call: Call) -> str:
    """FunctionGemma's form."""
    value = _gemma_value(call.args).replace('<|"|>', "<escape>")
    return f"<start_function_call>call:{call.name}{value}<end_function_call>"


def _gemma_value(value: Any) -> str:
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value).items()
        return f"{{{','.join(f'{key}:{_gemma_value(one)}' for key, one in fields)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_gemma_value, cast('list[Any]', value)))}]"
    return json.dumps(value)


def harmony(reply: Reply, _: int) -> Reply:
    """The form of gpt-oss: thoughts, one call or the answer, each a message."""
    thought = f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant"
    if not reply.calls:
        return replace(reply, text=f"{thought}<|channel|>final<|message|>{reply.text}<|return|>")
    call = reply.calls[0]
    header = f"<|channel|>commentary to=functions.{call.name} <|constrain|>json<|message|>"
    return replace(reply, text=f"{thought}{header}{json.dumps(call.args)}<|call|>", calls=())
