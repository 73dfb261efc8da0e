"""Messages as OpenAI-compatible servers take them, each made once.

The history of a run only grows, so a message's wire form is kept as long as the message lives.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from langchain_core.messages import AIMessage, BaseMessage

WireMessage = dict[str, Any]


@dataclass(frozen=True)
class Dialect:
    """What a server accepts beyond the common ground."""

    official: bool
    """OpenAI's own service: `developer` role, `max_completion_tokens`."""
    wants_reasoning: bool
    """Its models expect their reasoning back in turns with tool calls."""


def dialect_of(base_url: str | None, model: str) -> Dialect:
    """Return a server's dialect, by its address and the model's name."""
    official = is_openai(base_url)
    refuses = official or _host(base_url).endswith(("api.groq.com", "api.mistral.ai"))
    thinks = re.search(r"deepseek|kimi|minimax|glm-|mimo|qwen|gpt-oss", model, re.IGNORECASE)
    return Dialect(official=official, wants_reasoning=bool(thinks) and not refuses)


def is_openai(base_url: str | None) -> bool:
    """Whether an address is of OpenAI's own service, as none is."""
    host = _host(base_url)
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def _host(base_url: str | None) -> str:
    return (urlsplit(base_url).hostname or "") if base_url else "api.openai.com"


def refuses_temperature(model: str, reasoning_effort: str | None = None) -> bool:
    """Whether it is one of OpenAI's reasoning models, which take no temperature of one's own."""
    if reasoning_effort == "none":
        return False
    return is_reasoning_model(model) and "-chat" not in model


def is_reasoning_model(model: str) -> bool:
    """Whether the name, behind any vendor prefix, is of OpenAI's o or GPT-5 family or later."""
    return (
        re.match(r"(o[1-9]|gpt-([5-9]|\d\d))(\D|$)", model.lower().rpartition("/")[2]) is not None
    )


def adapt(raw: WireMessage, message: BaseMessage, dialect: Dialect) -> WireMessage:
    """Turn LangChain's wire form into one that strict and simple servers take as well."""
    # LangChain strips cache marks from tool results, so those are taken from the message.
    content = message.content if raw["role"] == "tool" else raw.get("content")
    form = {**raw, "content": _content(content, raw["role"])}
    if form["role"] == "developer" and not dialect.official:
        form["role"] = "system"
    if isinstance(message, AIMessage):
        _adapt_tool_calls(form, message)
        _return_reasoning(form, message, dialect)
    return form


def _content(content: object, role: str) -> object:
    """Join blocks that are all plain text; many servers take lists for pictures only."""
    if not isinstance(content, list):
        return _sendable(content) if isinstance(content, str) else content or ""
    blocks = cast("list[str | dict[str, Any]]", content)
    if role == "tool":  # pictures are refused there
        blocks = [
            block if isinstance(block, str) or block.get("type") == "text" else "(picture left out)"
            for block in blocks
        ]
    texts = [_plain_text(block) for block in blocks]
    if all(text is not None for text in texts):
        return ("" if role == "assistant" else "\n\n").join(cast("list[str]", texts))
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in blocks]


def _plain_text(block: str | dict[str, Any]) -> str | None:
    if isinstance(block, str):
        return _sendable(block)
    # Further keys (cache_control) are hints that joining would lose.
    if block.get("type") == "text" and set(block) <= {"type", "text", "id", "index"}:
        return _sendable(str(block["text"]))
    return None


def _sendable(text: str) -> str:
    """Replace lone surrogates, which file names and broken output hold and no request can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _adapt_tool_calls(form: WireMessage, message: AIMessage) -> None:
    extras = cast("dict[str, Any]", message.additional_kwargs.get("tool_call_extras", {}))
    calls = cast("list[dict[str, Any]]", form.get("tool_calls") or [])
    if not calls:
        form.pop("tool_calls", None)
        return
    form["tool_calls"] = [
        {
            **call,
            "function": {
                "name": re.sub(r"[^a-zA-Z0-9_-]", "_", call["function"]["name"] or "unnamed")[:64],
                "arguments": _object_text(call["function"].get("arguments")),
            },
            **extras.get(call.get("id") or "", {}),
        }
        for call in calls
    ]


def _object_text(arguments: object) -> str:
    """Arguments as JSON text of an object: templates of several servers crash on anything else."""
    text = _sendable(arguments) if isinstance(arguments, str) else json.dumps(arguments or {})
    try:
        if isinstance(json.loads(text, strict=False), dict):
            return text
    except ValueError:
        pass
    return json.dumps({"not_a_json_object": text}, ensure_ascii=False) if text.strip() else "{}"


def _return_reasoning(form: WireMessage, message: AIMessage, dialect: Dialect) -> None:
    """Send a model its own reasoning back with the tool calls it led to."""
    if "tool_calls" not in form:
        return
    extra = message.additional_kwargs
    if details := extra.get("reasoning_details"):  # OpenRouter's, which may be signed
        form["reasoning_details"] = details
    elif dialect.wants_reasoning and (reasoning := extra.get("reasoning_content")):
        form[extra.get("reasoning_field", "reasoning_content")] = reasoning
