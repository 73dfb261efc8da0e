"""Requests to models without native tool calls: calls as text, or as constrained steps.

A constrained step is one JSON object that a server forces the model to write: a thought, an action
and its input. The conversation is stored with native calls, as for all models.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)

from openmanus_graph.conversation import announcements, fenced_calls, replies
from openmanus_graph.conversation.history import canonical_calls, run_messages, with_text
from openmanus_graph.prompts import render
from openmanus_graph.state.json_values import as_list, as_object, json_or, referred

ANSWER, GIVE_UP, TERMINATE, SEARCH = "answer", "give_up", "terminate", "search_tools"
_CODE = "python_execute"
"""Its input is a list of lines: small models seldom escape line breaks in a JSON string."""
_NAMES = {_CODE: "python"}
"""Names of actions that are shorter than their tools'."""
_MAX_DESCRIPTION_CHARS = 300
_LATEST_CALLS = 4
"""If one of these was made before, the run is in a loop."""
_MAX_NODES = 2000
"""Of a schema with its references resolved; everything beyond is any object."""
_KEPT_KEYWORDS = ("description", "enum")
_ELSEWHERE = (
    r"(?i)\b(?:web\w*|internet|online|brows\w+|sites?|urls?|google|screenshots?|github|slack"
    r"|página|сайт\w*|интернет\w*)\b|https?:|网|検索"
)
_NEEDS_OTHERS = (
    r"\b(?:search|click|charts?|remember|tools?|send|tickets?|calendar|database|buy|such\w*"
    r"|suche|seite|cherche\w*|busca\w*)\b|搜"
)
"""Words of tasks that may need more than Python, a shell and files; these, if no file is named."""


def tools_as_text(
    messages: Sequence[BaseMessage], tools: Sequence[Mapping[str, Any]]
) -> list[BaseMessage]:
    lines = [
        json.dumps(tool["function"], ensure_ascii=False, separators=(",", ":"))
        for tool in tools
        if "function" in tool  # others are run by their provider
    ]
    if not lines:
        return list(messages)
    described = render("text_tools", tools="\n".join(lines))
    if messages and isinstance(messages[0], SystemMessage):
        return [SystemMessage(f"{messages[0].text}\n\n{described}"), *messages[1:]]
    return [SystemMessage(described), *messages]


def turns_as_text(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return a request with calls and results as text.

    Successive messages of the user are joined: the templates of many such models require that.
    """
    return joined_users([_as_text(message) for message in messages])


def joined_users(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    joined = list[BaseMessage]()
    for message in messages:
        if joined and isinstance(message, HumanMessage) and isinstance(joined[-1], HumanMessage):
            joined[-1] = HumanMessage(joined_content(joined[-1], message), id=joined[-1].id)
        else:
            joined.append(message)
    return joined


def _as_text(message: BaseMessage) -> BaseMessage:
    if isinstance(message, ToolMessage):
        failed = ' status="error"' if message.status == "error" else ""
        return HumanMessage(f"<tool_result{failed}>\n{message.text}\n</tool_result>")
    if isinstance(message, AIMessage) and message.tool_calls:
        written = (
            json.dumps({"name": call["name"], "arguments": call["args"]}, ensure_ascii=False)
            for call in message.tool_calls
        )
        calls = "\n".join(f"<tool_call>{one}</tool_call>" for one in written)
        text = "\n".join(filter(None, (message.text.strip(), calls)))
        return AIMessage(with_text(message, text), id=message.id)
    return message


def joined_content(first: BaseMessage, second: BaseMessage) -> Any:
    if isinstance(first.content, str) and isinstance(second.content, str):
        return f"{first.content}\n\n{second.content}"
    blocks: list[str | dict[str, Any]] = []
    for content in (first.content, second.content):
        blocks += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return blocks


def steps_request(
    messages: Sequence[BaseMessage],
    tools: Sequence[Mapping[str, Any]],
    history: Sequence[AnyMessage],
    *,
    only_answer: bool = False,
) -> tuple[list[BaseMessage], dict[str, Any]]:
    """Return messages in which calls are steps, and the JSON schema of the next one.

    The schema leaves out an answer before anything was done, and an action that was repeated. With
    `only_answer` the next step has to end the work.
    """
    actions = _actions(tools)
    described = render(
        "constrained_steps",
        actions="\n".join(_line(one) for name, one in actions.items() if name != SEARCH),
    )
    given = list(messages)
    system = given.pop(0).text if given and isinstance(given[0], SystemMessage) else ""
    steps: list[BaseMessage] = [SystemMessage(f"{system}\n\n{described}".strip())]
    task = replies.task_of(history)
    elsewhere = _ELSEWHERE if announcements.named_files(task) else f"{_ELSEWHERE}|{_NEEDS_OTHERS}"
    if SEARCH in actions and re.search(elsewhere, task):
        # Not above: that part is the same for all tasks, so that servers have it cached.
        steps.append(HumanMessage(f"One more action:\n{_line(actions[SEARCH])}"))
    else:
        actions.pop(SEARCH, None)
    steps = joined_users([*steps, *(_as_step(message, actions) for message in given)])
    barred = {*actions} if only_answer else _barred(history)
    left = {name: one for name, one in actions.items() if name not in barred}
    return steps, _schema(left, ends=not left or _may_end(history))


def read_step(reply: AIMessage, tools: Sequence[Mapping[str, Any]]) -> AIMessage | None:
    """Return a reply with its step as a call or an answer; None if it is not a step."""
    bare = reply.text.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
    actions, step = _actions(tools), as_object(json_or(bare, strict=False))
    name, given, thought = step.get("action"), step.get("input"), str(step.get("thought", ""))
    if name in (ANSWER, GIVE_UP) and isinstance(given, str):
        offered = {tool.get("function", {}).get("name") for tool in tools}
        if name == ANSWER or TERMINATE not in offered:
            return reply.model_copy(update={"content": with_text(reply, given)})
        name, args = TERMINATE, dict[str, Any](status="failure", answer=given)
    elif isinstance(name, str) and name in actions:
        key = _only_text(actions[name])
        given = "\n".join(map(str, as_list(given))) if isinstance(given, list) else given
        args = as_object(given) if isinstance(given, dict) else {key or "input": given}
        name = actions[name]["name"]
        meant = fenced_calls.meant_call(str(args.get("code", ""))) if name == _CODE else None
        if meant is not None and (meant[0] == name or meant[0] in actions):
            args = {**args, **meant[1]} if meant[0] == name else dict[str, Any](meant[1])
            name = meant[0]
    else:
        return None
    call = ToolCall(id=None, name=name, args=args, type="tool_call")
    return reply.model_copy(update={"content": with_text(reply, thought), "tool_calls": [call]})


def _actions(tools: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    functions = (as_object(tool["function"]) for tool in tools if "function" in tool)
    return {_action(one["name"]): one for one in functions if one["name"] != TERMINATE}


def _action(tool: str) -> str:
    return _NAMES.get(tool, tool)


def _barred(history: Sequence[AnyMessage]) -> set[str]:
    """Return the actions of the latest calls that were repeated."""
    calls = [
        call
        for message in run_messages(history)
        if isinstance(message, AIMessage)
        for call in canonical_calls(message)
    ]
    return {_action(call[0]) for call in calls[-_LATEST_CALLS:] if calls.count(call) > 1}


def _may_end(history: Sequence[AnyMessage]) -> bool:
    """Return False after a refused answer, and before the first result of a task about files."""
    task, run = replies.task_of(history), run_messages(history)
    if run and isinstance(run[-1], AIMessage) and not run[-1].tool_calls:
        return False
    has_result = any(isinstance(one, ToolMessage) for one in run)
    return has_result or not (announcements.names_things(task) or re.search(r"\d", task))


def _only_text(function: Mapping[str, Any]) -> str | None:
    """Return the argument that can be a tool's whole input: a text that alone is required."""
    schema = function.get("parameters", {})
    properties, required = schema.get("properties", {}), schema.get("required", ())
    name = next(iter(required or properties), None)
    if name is None or len(required) > 1 or properties.get(name, {}).get("type") != "string":
        return None
    return str(name)


def _line(function: Mapping[str, Any]) -> str:
    about = " ".join(str(function.get("description", "")).split())[:_MAX_DESCRIPTION_CHARS]
    properties = as_object(function.get("parameters", {}).get("properties"))
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


def _variant(action: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    properties = {"thought": {"type": "string"}, "action": action, "input": given}
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


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema with the keywords that every server understands.

    References are resolved, and the first of several alternatives is taken. What only narrows a
    value is left out: arguments are checked against the whole schema later.
    """
    return _PlainSchema(schema).of(schema, ())


class _PlainSchema:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = _MAX_NODES

    def of(self, schema: Any, inside: tuple[str, ...]) -> dict[str, Any]:
        """Return the plain form of a part, which was reached by the references `inside`."""
        self._left -= 1
        if not isinstance(schema, dict) or self._left < 0:
            return {"type": "object"}
        merged, inside = self._merged(as_object(schema), inside)
        plain = {key: merged[key] for key in _KEPT_KEYWORDS if key in merged}
        if "const" in merged:
            plain["enum"] = [merged["const"]]
        plain["type"] = kind = _kind_of(merged, plain)
        properties: Any = merged.get("properties")
        if kind == "object" and isinstance(properties, dict):
            inner = as_object(properties)
            plain["properties"] = {name: self.of(one, inside) for name, one in inner.items()}
            required = [name for name in merged.get("required") or () if name in inner]
            plain |= {"required": required} if required else {}
        elif kind == "array":
            plain["items"] = self.of(merged.get("items") or {"type": "string"}, inside)
        return plain

    def _merged(
        self, schema: Mapping[str, Any], inside: tuple[str, ...]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return a schema merged with its reference, its parts and its first alternative."""
        merged, parts = dict(schema), list[Any]()
        reference = merged.get("$ref")
        if isinstance(reference, str) and reference not in inside:
            inside = (*inside, reference)
            parts.append(referred(reference, self._root))
        parts += merged.get("allOf") or ()
        for key in ("anyOf", "oneOf"):
            parts += [one for one in merged.get(key) or () if one != {"type": "null"}][:1]
        for part in parts:
            self._left -= 1
            if not isinstance(part, dict) or self._left < 0:
                continue
            inner, inside = self._merged(as_object(part), inside)
            properties: dict[str, Any] = {
                **(inner.get("properties") or {}),
                **(merged.get("properties") or {}),
            }
            required = [*(inner.get("required") or ()), *(merged.get("required") or ())]
            merged = {**inner, **merged}
            merged |= {"properties": properties} if properties else {}
            merged |= {"required": required} if required else {}
        return merged, inside


def _kind_of(schema: Mapping[str, Any], plain: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in as_list(kind) if one != "null"), None)
    if isinstance(kind, str):
        return kind
    if "properties" in schema or "items" in schema:
        return "object" if "properties" in schema else "array"
    first: object = next(iter(plain.get("enum") or ()), "")
    names: dict[type, str] = {bool: "boolean", int: "integer", float: "number"}
    return names.get(type(first), "string")
