"""Tool calls for models without them: tools in the system prompt, calls and results as text.

The calls in replies are read by `conversation.text_calls`, as everybody's calls written as text
are. The conversation itself is stored as it is for all models; only the request differs.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from openmanus_graph.conversation.history import with_text
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
