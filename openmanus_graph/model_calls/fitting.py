"""Makes a request fit what its server takes: the same conversation in the server's dialect. Pure.

What can be said of the messages alone is done here, for every provider. What only chat completions
have (reasoning, names of parameters) `OpenAICompatibleModel` does, by the same dialect.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from openmanus_graph.backends.models.dialects import SKIPPED_SIGNATURE, Dialect, SentRequest
from openmanus_graph.conversation.caches import ConversationCache
from openmanus_graph.conversation.history import with_text
from openmanus_graph.model_calls.projection import is_picture
from openmanus_graph.model_calls.recorder import ProviderRequest
from openmanus_graph.prompts import render


def tools_as_text(
    messages: Sequence[BaseMessage], tools: Sequence[Mapping[str, Any]]
) -> list[BaseMessage]:
    """Return a request with the tools described at the end of its system message."""
    lines = [
        json.dumps(tool["function"], ensure_ascii=False, separators=(",", ":"))
        for tool in tools
        if "function" in tool  # others are run by their provider, which this model has not
    ]
    if not lines:
        return list(messages)
    described = render("text_tools", tools="\n".join(lines))
    if messages and isinstance(messages[0], SystemMessage):
        return [SystemMessage(f"{messages[0].text}\n\n{described}"), *messages[1:]]
    return [SystemMessage(described), *messages]


def turns_as_text(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return a request with calls and results as text.

    Messages of one speaker become one: the templates of many such models take no others.
    """
    said: list[BaseMessage] = []
    for message in messages:
        following = _as_text(message)
        if isinstance(following, HumanMessage) and said and isinstance(said[-1], HumanMessage):
            said[-1] = HumanMessage(joined_content(said[-1], following))
        else:
            said.append(following)
    return said


def _as_text(message: BaseMessage) -> BaseMessage:
    if isinstance(message, ToolMessage):
        failed = ' status="error"' if message.status == "error" else ""
        return HumanMessage(f"<tool_result{failed}>\n{message.text}\n</tool_result>")
    if isinstance(message, AIMessage) and message.tool_calls:
        calls = "\n".join(
            f"<tool_call>{_call_text(call['name'], call['args'])}</tool_call>"
            for call in message.tool_calls
        )
        text = "\n".join(filter(None, (message.text.strip(), calls)))
        return AIMessage(with_text(message, text), id=message.id)
    return message


def _call_text(name: str, args: Mapping[str, Any]) -> str:
    return json.dumps({"name": name, "arguments": args}, ensure_ascii=False)


def joined_content(first: BaseMessage, second: BaseMessage) -> Any:
    """Return the contents of two messages as one."""
    if isinstance(first.content, str) and isinstance(second.content, str):
        return f"{first.content}\n\n{second.content}"
    return [*_blocks(first), *_blocks(second)]


def _blocks(message: BaseMessage) -> list[str | dict[str, Any]]:
    content = message.content
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


LEGAL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
NINE_ID = re.compile(r"[A-Za-z0-9]{9}")
_MOST_NODES = 2000
"""Of a schema with its references written out; what lies behind them is any object."""
_KEPT_KEYWORDS = ("description", "enum")


class Fitter:
    """Fits the requests of one conversation; a message is changed once."""

    def __init__(self) -> None:
        self._dialect: Dialect | None = None
        self._messages: ConversationCache[BaseMessage] = ConversationCache()

    def fitted(
        self, request: ProviderRequest, dialect: Dialect, *, as_text: bool
    ) -> ProviderRequest:
        """Return a request as its server takes it.

        Args:
            request: As everybody's is.
            dialect: Of the server.
            as_text: Whether the model writes its calls as text.
        """
        messages, tools, options = request.messages, request.tools, request.options
        if dialect.ids != "any" or dialect.signatures:
            if dialect != self._dialect:
                self._dialect, self._messages = dialect, ConversationCache()
            messages = self._messages.get(messages, lambda one: _fitted_message(one, dialect))
        if dialect.pictures is not None:
            messages = _with_newest_pictures(messages, dialect.pictures)
        if as_text:
            options = {key: value for key, value in options.items() if key != "tool_choice"}
            messages, tools = tools_as_text(turns_as_text(messages), tools), ()
        if dialect.system != "free":
            messages = _with_system_first(messages, may_stay=dialect.system == "first")
        if dialect.roles == "alternate":
            messages = _alternating(messages)
        if dialect.schemas == "plain":
            tools = [_with_plain_schema(tool) for tool in tools]
        return replace(request, messages=list(messages), tools=tools, options=options)


def sent_request(request: ProviderRequest, parameters: Collection[str]) -> SentRequest:
    """Return what of a request may be the reason why it was refused.

    Args:
        request: As everybody's is.
        parameters: Names of those that its client sends beside the messages.
    """
    messages = request.messages
    replies = [one for one in messages if isinstance(one, AIMessage)]
    holds = {"parameters", "system_role", "roles"}
    holds |= {"reasoning"} if replies else set()
    holds |= {"ids", "signatures"} if any(one.tool_calls for one in replies) else set()
    holds |= {"schemas", "tools"} if request.tools else set()
    holds |= {"constrains"} if {"response_format", "format"} & request.options.keys() else set()
    holds |= {"system"} if any(isinstance(one, SystemMessage) for one in messages) else set()
    holds |= {"pictures"} if any(map(_picture_count, messages)) else set()
    return SentRequest([one.text for one in messages], {*parameters, *request.options}, holds)


def _fitted_message(message: BaseMessage, dialect: Dialect) -> BaseMessage:
    if isinstance(message, ToolMessage):
        new = _fitted_id(message.tool_call_id, dialect)
        same = new == message.tool_call_id
        return message if same else message.model_copy(update={"tool_call_id": new})
    if not isinstance(message, AIMessage) or not message.tool_calls:
        return message
    ids = {call["id"] or "": _fitted_id(call["id"] or "", dialect) for call in message.tool_calls}
    extras = dict(message.additional_kwargs.get("tool_call_extras", {}))
    if dialect.signatures and "extra_content" not in extras.get(next(iter(ids)), {}):
        google = {"google": {"thought_signature": SKIPPED_SIGNATURE}}
        extras[next(iter(ids))] = {"extra_content": google}
    extras = {ids.get(old, old): extra for old, extra in extras.items()}
    known = message.additional_kwargs
    if all(old == new for old, new in ids.items()) and extras == known.get("tool_call_extras", {}):
        return message
    calls = [{**call, "id": ids[call["id"] or ""]} for call in message.tool_calls]
    kwargs = {**known, **({"tool_call_extras": extras} if extras else {})}
    if isinstance(message.content, list):  # Anthropic's has the calls there, too
        content = [_with_id(block, ids) for block in message.content]
        return message.model_copy(
            update={"tool_calls": calls, "additional_kwargs": kwargs, "content": content}
        )
    return message.model_copy(update={"tool_calls": calls, "additional_kwargs": kwargs})


def _with_id(block: str | dict[str, Any], ids: Mapping[str, str]) -> str | dict[str, Any]:
    if isinstance(block, str) or block.get("id") not in ids:
        return block
    return {**block, "id": ids[block["id"]]}


def _fitted_id(call_id: str, dialect: Dialect) -> str:
    """Return an id that the server takes, the same one for the same call each time."""
    legal = {"nine": NINE_ID, "legal": LEGAL_ID}.get(dialect.ids)
    if legal is None or legal.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]


def _picture_count(message: BaseMessage) -> int:
    if isinstance(message.content, str):
        return 0
    return sum(map(is_picture, message.content))


def _with_newest_pictures(messages: Sequence[BaseMessage], most: int) -> list[BaseMessage]:
    """Return messages with so many of their pictures, and a note in the place of each other."""
    left, changed = most, list[BaseMessage]()
    for message in reversed(messages):
        count = _picture_count(message)
        if count > left:
            message = message.model_copy(update={"content": _without_first(message, count - left)})
        left = max(0, left - count)
        changed.append(message)
    return changed[::-1]


def _without_first(message: BaseMessage, number: int) -> list[str | dict[str, Any]]:
    blocks = list[str | dict[str, Any]]()
    for block in message.content:
        if number and is_picture(block):
            number -= 1
            block = {"type": "text", "text": "[A picture is left out: the server refused it.]"}
        blocks.append(block)
    return blocks


def _with_system_first(messages: Sequence[BaseMessage], *, may_stay: bool) -> list[BaseMessage]:
    """Return messages with later instructions as the user's; without `may_stay` the first, too."""
    changed = [
        HumanMessage(one.content)
        if isinstance(one, SystemMessage) and (position or not may_stay)
        else one
        for position, one in enumerate(messages)
    ]
    return _joined_users(changed)


def _alternating(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return messages in which user and model take turns, and only a reply follows a result."""
    changed = list[BaseMessage]()
    for message in _joined_users(messages):
        last = changed[-1] if changed else None
        if isinstance(last, ToolMessage) and isinstance(message, HumanMessage):
            if not _picture_count(message):
                text = f"{last.text}\n\n{message.text}"
                changed[-1] = last.model_copy(update={"content": text})
                continue
            changed.append(AIMessage("I look at the pictures."))
        elif isinstance(last, AIMessage) and isinstance(message, AIMessage):
            changed.append(HumanMessage("Go on."))
        changed.append(message)
    if changed and isinstance(changed[-1], AIMessage):
        changed.append(HumanMessage("Go on."))
    return changed


def _joined_users(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    joined = list[BaseMessage]()
    for message in messages:
        if joined and isinstance(message, HumanMessage) and isinstance(joined[-1], HumanMessage):
            joined[-1] = HumanMessage(joined_content(joined[-1], message), id=joined[-1].id)
        else:
            joined.append(message)
    return joined


def _with_plain_schema(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, dict):
        return tool  # a provider's own
    function = cast("dict[str, Any]", function)
    schema = cast("dict[str, Any]", function.get("parameters") or {})
    plain: dict[str, Any] = {"properties": {}, **plain_schema(schema), "type": "object"}
    kept = {key: value for key, value in function.items() if key != "strict"}
    return {**tool, "function": {**kept, "parameters": plain}}


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema in the words that every server understands.

    References are written out, of alternatives the first one counts, and what only narrows a
    value is left out: arguments are checked against the whole schema when they come.
    """
    return _PlainSchema(schema).of(schema, ())


class _PlainSchema:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = _MOST_NODES

    def of(self, schema: Any, inside: tuple[str, ...]) -> dict[str, Any]:
        """Return the plain form of a part; `inside` are the references it was reached by."""
        self._left -= 1
        if not isinstance(schema, dict) or self._left < 0:
            return {"type": "object"}
        merged, inside = self._merged(cast("dict[str, Any]", schema), inside)
        plain = {key: merged[key] for key in _KEPT_KEYWORDS if key in merged}
        if "const" in merged:
            plain["enum"] = [merged["const"]]
        plain["type"] = kind = _kind_of(merged, plain)
        properties: Any = merged.get("properties")
        if kind == "object" and isinstance(properties, dict):
            inner = cast("dict[str, Any]", properties)
            plain["properties"] = {name: self.of(one, inside) for name, one in inner.items()}
            required = [name for name in merged.get("required") or () if name in inner]
            plain |= {"required": required} if required else {}
        elif kind == "array":
            plain["items"] = self.of(merged.get("items") or {"type": "string"}, inside)
        return plain

    def _merged(
        self, schema: Mapping[str, Any], inside: tuple[str, ...]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return a schema with what it refers to, all it consists of, its first alternative."""
        merged, parts = dict(schema), list[Any]()
        reference = merged.get("$ref")
        if isinstance(reference, str) and reference not in inside:
            inside = (*inside, reference)
            parts.append(_referred(reference, self._root))
        parts += merged.get("allOf") or ()
        for key in ("anyOf", "oneOf"):
            parts += [one for one in merged.get(key) or () if one != {"type": "null"}][:1]
        for part in parts:
            self._left -= 1
            if not isinstance(part, dict) or self._left < 0:
                continue
            inner, inside = self._merged(cast("dict[str, Any]", part), inside)
            properties: dict[str, Any] = {
                **(inner.get("properties") or {}),
                **(merged.get("properties") or {}),
            }
            required = [*(inner.get("required") or ()), *(merged.get("required") or ())]
            merged = {**inner, **merged}
            merged |= {"properties": properties} if properties else {}
            merged |= {"required": required} if required else {}
        return merged, inside


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for name in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
        name = name.replace("~1", "/").replace("~0", "~")
        found = cast("dict[str, Any]", found).get(name) if isinstance(found, dict) else None
    return found


def _kind_of(schema: Mapping[str, Any], plain: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in cast("list[Any]", kind) if one != "null"), None)
    if isinstance(kind, str):
        return kind
    if "properties" in schema or "items" in schema:
        return "object" if "properties" in schema else "array"
    first: object = next(iter(plain.get("enum") or ()), "")
    names: dict[type, str] = {bool: "boolean", int: "integer", float: "number"}
    return names.get(type(first), "string")
