"""Requests of servers during a call: elicitation asks the user, sampling asks the model."""

import base64
import binascii
import json
import mimetypes
from collections.abc import Iterator, Mapping
from typing import Any, cast

import mcp_types as types
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from openmanus_graph.backends.mcp.listed_tools import sanitize_text
from openmanus_graph.backends.mcp.schemas import is_schema
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.interrupts import Decision, read_decision, read_text
from openmanus_graph.state.validation import schema_problems

MAX_REQUEST_CHARS = 200_000
_DECLINE_WORDS = {"decline", "reject", "no thanks"}
_CANCEL_WORDS = {"cancel"}
_YES, _NO = {"yes", "y", "true", "1"}, {"no", "n", "false", "0"}


def question_text(server: str, tool: str, params: Any, problem: str) -> str:
    """Return a server's request as a question; `problem` is why the last answer was rejected."""
    lines = [
        *([f"That cannot be passed on: {problem}."] if problem else []),
        f"The MCP server {server} asks (during {tool}): {sanitize_text(params.message)}",
    ]
    if url := getattr(params, "url", None):
        lines.append(f"It wants you to open {url}. Answer done when you have, or decline.")
        return "\n".join(lines)
    fields = list(_field_lines(_schema(params)))
    known = bool(_defaults(_schema(params)))
    if len(fields) > 1:
        usual = " What you leave out gets its default; answer nothing to leave all out."
        lines += [*fields, f"Answer with a JSON object of these fields, or decline.{usual * known}"]
    elif fields:
        usual = " Answer nothing to take the default."
        lines += [*fields, f"Answer with that value, or decline.{usual * known}"]
    else:
        lines.append("Answer yes, or decline.")
    return "\n".join(lines)


def read_answer(params: Any, value: Any) -> types.ElicitResult | str:
    """Parse the user's answer. If it is wrong, return the problem as text."""
    text = read_text(value)
    word = (text or "").strip()
    decision = read_decision(value) if isinstance(value, Mapping) else None
    rejected = decision is not None and decision.type == "reject"
    if rejected or word.lower() in _DECLINE_WORDS:
        return types.ElicitResult(action="decline")
    if word.lower() in _CANCEL_WORDS:
        return types.ElicitResult(action="cancel")
    if getattr(params, "url", None):
        return types.ElicitResult(action="accept")
    schema = _schema(params)
    defaults = _defaults(schema)
    left_out = text is not None and not word and bool(defaults)
    content = {} if left_out else _content(schema, value, decision, word)
    if content is None:
        return "a JSON object is needed"
    content = {**defaults, **content}
    problems = schema_problems(schema, content) if schema else []
    return "; ".join(problems) or types.ElicitResult(action="accept", content=content)


def _content(
    schema: dict[str, Any], value: Any, decision: Decision | None, word: str
) -> dict[str, Any] | None:
    properties = _properties(schema)
    if isinstance(value, Mapping) and set(cast("Mapping[str, Any]", value)) <= set(properties):
        return dict(cast("Mapping[str, Any]", value))
    try:
        parsed: Any = json.loads(word)
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, dict):
        return cast("dict[str, Any]", parsed)
    if not properties or (decision is not None and decision.type == "approve"):
        return {}
    if len(properties) > 1:
        return None
    name, field = next(iter(properties.items()))
    return {name: _typed(field, word)}


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    fields = _properties(schema).items()
    return {name: field["default"] for name, field in fields if "default" in field}


def _typed(field: Mapping[str, Any], word: str) -> Any:
    """Convert a value to the type of its schema."""
    kind = field.get("type")
    if kind == "boolean" and word.lower() in _YES | _NO:
        return word.lower() in _YES
    if kind in ("integer", "number"):
        try:
            return int(word) if kind == "integer" else float(word)
        except ValueError:
            return word
    if kind == "array":
        return [part.strip() for part in word.split(",")]
    return word


def _field_lines(schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required") or ()
    for name, field in _properties(schema).items():
        several = field.get("type") == "array"
        of_choice: dict[str, Any] = field.get("items") or {} if several else field
        titled: list[Any] = of_choice.get("oneOf") or of_choice.get("anyOf") or []
        choices: list[Any] = of_choice.get("enum") or [one.get("const") for one in titled]
        of = "some" if several else "one"
        facts = [
            str(field.get("format") or field.get("type", "value")),
            *(["required"] if name in required else []),
            *([f"{of} of {', '.join(map(str, choices))}"] if choices else []),
            *([f"default {field['default']}"] if "default" in field else []),
        ]
        about = sanitize_text(str(field.get("description") or field.get("title") or ""), 300)
        yield f"- {name} ({', '.join(facts)})" + (f": {about}" if about else "")


def _properties(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, Any] = schema.get("properties") or {}
    return {name: field if isinstance(field, dict) else {} for name, field in found.items()}


def _schema(params: Any) -> dict[str, Any]:
    """Return the schema of the requested form; empty if it is not a valid schema."""
    found: Any = getattr(params, "requested_schema", None)
    return cast("dict[str, Any]", found) if is_schema(found) else {}


def sampling_messages(
    params: types.CreateMessageRequestParams, workspace: Workspace
) -> list[AnyMessage]:
    """Turn a sampling request into messages. Blocks: pictures become files."""
    messages: list[AnyMessage] = []
    for index, message in enumerate(params.messages):
        content: Any = message.content  # one block, or several
        blocks = cast("list[Any]", content if isinstance(content, list) else [content])
        text = "\n".join(block.text for block in blocks if block.type == "text")[:MAX_REQUEST_CHARS]
        if message.role == "assistant":
            messages.append(AIMessage(text, id=f"sampled-{index}"))
            continue
        pictures = [_save_image(block, workspace) for block in blocks if block.type == "image"]
        shown = [path for path in pictures if path]
        extra = {"images": shown} if shown else {}
        messages.append(HumanMessage(text, id=f"sampled-{index}", additional_kwargs=extra))
    return messages


def sampling_result(reply: AIMessage, model: str) -> types.CreateMessageResult:
    model_name = str(reply.response_metadata.get("model_name") or model or "model")
    content = types.TextContent(type="text", text=reply.text.strip())
    return types.CreateMessageResult(
        role="assistant", content=content, model=model_name, stop_reason="endTurn"
    )


def _save_image(block: Any, workspace: Workspace) -> str | None:  # the SDK's ImageContent
    try:
        data = base64.b64decode(block.data)
    except (binascii.Error, ValueError):
        return None
    path = workspace.keep(data, mimetypes.guess_extension(block.mime_type) or ".png")
    return workspace.relative(path)
