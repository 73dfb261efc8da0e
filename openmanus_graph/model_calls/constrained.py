"""Constrained steps: each reply is one JSON object, for servers that make a model keep to a schema.

A step is a thought, an action and its input. The conversation is stored with native calls, as for
all models; only the request differs.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)

from openmanus_graph.conversation.announcements import named_files, names_things
from openmanus_graph.conversation.fenced_calls import meant_call
from openmanus_graph.conversation.history import canonical_calls, run_messages, with_text
from openmanus_graph.conversation.replies import task_of
from openmanus_graph.model_calls.fitting import joined_content, plain_schema
from openmanus_graph.prompts import render

ANSWER, GIVE_UP, TERMINATE, SEARCH = "answer", "give_up", "terminate", "search_tools"
_NAMES = {"python_execute": "python"}
"""Names of actions, where they are shorter than their tools'."""
_CODE = "python_execute"
"""Its input is a list of lines: small models seldom write line breaks well within a JSON string."""
_MOST_CHARS = 300
"""Of a tool's description."""
_LATEST_CALLS = 4
"""One of these that was made before shows that the run goes round in circles."""
_ELSEWHERE = (
    r"(?i)\b(?:web\w*|internet|online|brows\w+|sites?|urls?|google|screenshots?|github|slack"
    r"|página|сайт\w*|интернет\w*)\b|https?:|网|検索"
)
_NEEDS_OTHERS = (
    r"\b(?:search|click|charts?|remember|tools?|send|tickets?|calendar|database|buy|such\w*"
    r"|suche|seite|cherche\w*|busca\w*)\b|搜"
)
"""Words of tasks that may need more than Python, a shell and files; these, if no file is named."""


def steps_request(
    messages: Sequence[BaseMessage],
    tools: Sequence[Mapping[str, Any]],
    history: Sequence[AnyMessage],
    *,
    only_answer: bool = False,
) -> tuple[list[BaseMessage], dict[str, Any]]:
    """Return messages in which calls are steps, and the JSON schema of the next one.

    The schema leaves out what would lead nowhere: an answer before anything was done, and an action
    that was repeated.

    Args:
        messages: As everybody is sent them.
        tools: Definitions of those that are offered.
        history: The conversation as it is stored.
        only_answer: Whether the next step has to end the work.
    """
    actions = _actions(tools)
    described = render(
        "constrained_steps",
        actions="\n".join(_line(one) for name, one in actions.items() if name != SEARCH),
    )
    given = list(messages)
    system = given.pop(0).text if given and isinstance(given[0], SystemMessage) else ""
    steps: list[BaseMessage] = [SystemMessage(f"{system}\n\n{described}".strip())]
    if SEARCH in actions and _may_need_others(task_of(history)):
        # Not above: that is the same for all tasks, so that servers have it cached.
        steps.append(HumanMessage(f"One more action:\n{_line(actions[SEARCH])}"))
    else:
        actions.pop(SEARCH, None)
    for message in given:
        following = _as_step(message, actions)
        if isinstance(following, HumanMessage) and isinstance(steps[-1], HumanMessage):
            following = HumanMessage(joined_content(steps.pop(), following))
        steps.append(following)
    barred = {*actions} if only_answer else _barred(history)
    left = {name: one for name, one in actions.items() if name not in barred}
    return steps, _schema(left, ends=not left or _may_end(history))


def _may_need_others(task: str) -> bool:
    words = _ELSEWHERE if named_files(task) else f"{_ELSEWHERE}|{_NEEDS_OTHERS}"
    return re.search(words, task) is not None


def read_step(reply: AIMessage, tools: Sequence[Mapping[str, Any]]) -> AIMessage | None:
    """Return a reply with its step as a call or an answer; None if it is no step.

    Args:
        reply: As the model wrote it.
        tools: Definitions of those that were offered.
    """
    bare = reply.text.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
    try:
        step = json.loads(bare, strict=False)
    except (ValueError, RecursionError):
        return None
    actions = _actions(tools)
    if not isinstance(step, dict):
        return None
    step = cast("dict[str, Any]", step)
    name, given, thought = step.get("action"), step.get("input"), str(step.get("thought", ""))
    if name in (ANSWER, GIVE_UP) and isinstance(given, str):
        if name == ANSWER or not _offers(tools, TERMINATE):
            return reply.model_copy(update={"content": with_text(reply, given)})
        name, args = TERMINATE, dict[str, Any](status="failure", answer=given)
    elif isinstance(name, str) and name in actions:
        key = _only_text(actions[name])
        given = "\n".join(map(str, cast("list[Any]", given))) if isinstance(given, list) else given
        args = cast("dict[str, Any]", given) if isinstance(given, dict) else {key or "input": given}
        name = actions[name]["name"]
        meant = meant_call(str(args.get("code", ""))) if name == _CODE else None
        if meant is not None and (meant[0] == name or meant[0] in actions):
            args = {**args, **meant[1]} if meant[0] == name else dict[str, Any](meant[1])
            name = meant[0]
    else:
        return None
    call = ToolCall(id=None, name=name, args=args, type="tool_call")
    return reply.model_copy(update={"content": with_text(reply, thought), "tool_calls": [call]})


def _actions(tools: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the functions of the tools that are actions, by the action's name."""
    functions = (
        cast("Mapping[str, Any]", tool["function"]) for tool in tools if "function" in tool
    )
    return {_action(one["name"]): one for one in functions if one["name"] != TERMINATE}


def _action(tool: str) -> str:
    return _NAMES.get(tool, tool)


def _offers(tools: Sequence[Mapping[str, Any]], name: str) -> bool:
    return any(tool.get("function", {}).get("name") == name for tool in tools)


def _barred(history: Sequence[AnyMessage]) -> set[str]:
    """Return the actions that would lead nowhere now."""
    calls = [
        call
        for message in run_messages(history)
        if isinstance(message, AIMessage)
        for call in canonical_calls(message)
    ]
    return {_action(call[0]) for call in calls[-_LATEST_CALLS:] if calls.count(call) > 1}


def _may_end(history: Sequence[AnyMessage]) -> bool:
    """Return False where something has to be done first.

    That is after an answer that was refused, and as long as nothing was done of a task that is
    about files or figures.
    """
    task, run = task_of(history), run_messages(history)
    if run and isinstance(run[-1], AIMessage) and not run[-1].tool_calls:
        return False
    return bool(_results(history)) or not (names_things(task) or re.search(r"\d", task))


def _results(history: Sequence[AnyMessage]) -> list[ToolMessage]:
    return [one for one in run_messages(history) if isinstance(one, ToolMessage)]


def _only_text(function: Mapping[str, Any]) -> str | None:
    """Return the argument that is a tool's whole input, if it is a text.

    It is the only one that is required, or the first one of those of which none is.
    """
    schema = function.get("parameters", {})
    properties, required = schema.get("properties", {}), schema.get("required", ())
    name = next(iter(required or properties), None)
    if name is None or len(required) > 1 or properties.get(name, {}).get("type") != "string":
        return None
    return str(name)


def _line(function: Mapping[str, Any]) -> str:
    """Describe an action."""
    about = " ".join(str(function.get("description", "")).split())[:_MOST_CHARS]
    properties = cast("dict[str, Any]", function.get("parameters", {}).get("properties", {}))
    key, name = _only_text(function), _action(function["name"])
    if key is not None:
        what = "a list of lines" if function["name"] == _CODE else f"the {key}"
        return f"- {name}: {about} The input is {what}."
    names = ", ".join(properties)
    return f"- {name}: {about} The input is an object with: {names or 'nothing'}."


def _schema(actions: Mapping[str, Mapping[str, Any]], *, ends: bool) -> dict[str, Any]:
    code = _action(_CODE)
    texts = [name for name, one in actions.items() if name != code and _only_text(one) is not None]
    objects = [one for name, one in actions.items() if name not in (code, *texts)]
    lines = {"type": "array", "items": {"type": "string"}}
    variants = [
        *([_variant({"const": code}, lines)] if code in actions else []),
        *([_variant({"enum": texts}, {"type": "string"})] if texts else []),
        *(
            _variant({"const": _action(one["name"])}, plain_schema(one.get("parameters") or {}))
            for one in objects
        ),
        *([_variant({"enum": [ANSWER, GIVE_UP]}, {"type": "string"})] if ends else []),
    ]
    return {"anyOf": variants}


def _variant(action: Mapping[str, Any], given: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    properties = {"thought": {"type": "string"}, "action": action, "input": given, **more}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _as_step(message: BaseMessage, actions: Mapping[str, Mapping[str, Any]]) -> BaseMessage:
    if isinstance(message, ToolMessage):
        failed = " (failed)" if message.status == "error" else ""
        name = _action(message.name or "the action")
        return HumanMessage(f"Result of {name}{failed}:\n{message.text}")
    if not isinstance(message, AIMessage):
        return message
    # A refused answer before it may have been joined to its text.
    thought = message.text.strip().rpartition("\n\n")[2]
    steps = [
        {"thought": thought, **_step_of(call["name"], call["args"], actions)}
        for call in message.tool_calls
    ] or [{"thought": "", "action": ANSWER, "input": message.text}]
    return AIMessage("\n".join(json.dumps(one, ensure_ascii=False) for one in steps))


def _step_of(
    name: str, args: Mapping[str, Any], actions: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    if name == TERMINATE:
        name = GIVE_UP if args.get("status") == "failure" else ANSWER
        return {"action": name, "input": str(args.get("answer", ""))}
    name = _action(name)
    key = _only_text(actions[name]) if name in actions else None
    if key is not None and list(args) == [key]:
        given = str(args[key]).split("\n") if name == _action(_CODE) else args[key]
        return {"action": name, "input": given}
    return {"action": name, "input": args}
