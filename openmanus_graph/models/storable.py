"""Making a reply fit to be stored and sent back: strict servers refuse much of what models send."""

import re
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, cast

from langchain_core.messages import AIMessage, AnyMessage, InvalidToolCall, ToolCall

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
FINISH_KEYS = ("finish_reason", "stop_reason", "stopReason", "done_reason")
KEPT_METADATA = (*FINISH_KEYS, "model_name", "model_provider")

CUT = (
    "The reply was cut off at its length limit in the middle of the call, so the call was not run. "
    "Make the arguments shorter, for example by writing a long file in several pieces."
)
UNREADABLE = (
    "The arguments are not a JSON object, so the call was not run: {shown}. Call it again with "
    "correct JSON; write long texts in smaller pieces."
)


def storable(raw: AIMessage, history: Sequence[AnyMessage]) -> AIMessage:
    """Return the reply with unique call ids and legal names, and without calls that were cut off.

    Valid ids are kept. Calls that cannot be run become invalid calls that say why.
    """
    cut = was_cut(raw)
    taken = _call_ids(history)
    valid: list[ToolCall] = []
    broken: list[InvalidToolCall] = []
    for made in (*raw.tool_calls, *raw.invalid_tool_calls):
        call_id = made["id"] or ""
        if not call_id.strip() or call_id in taken:
            call_id = f"call_{uuid.uuid4().hex}"
        taken.add(call_id)
        name, args = legal_name(made["name"] or ""), made["args"]
        if isinstance(args, dict) and not cut:
            clean: dict[str, Any] = without_surrogates(args)
            valid.append(ToolCall(id=call_id, name=name, args=clean, type="tool_call"))
        else:
            problem = CUT if cut else UNREADABLE.format(shown=repr(str(args)[:200]))
            broken.append(_broken(call_id, name, problem))
    metadata = raw.response_metadata
    kept = {key: metadata[key] for key in KEPT_METADATA if key in metadata}
    extra = {key: value for key, value in raw.additional_kwargs.items() if key != "tool_calls"}
    return AIMessage(
        content=without_surrogates(raw.content),
        id=raw.id or f"run-{uuid.uuid4().hex}",
        tool_calls=valid,
        invalid_tool_calls=broken,
        usage_metadata=raw.usage_metadata,
        additional_kwargs=without_surrogates(extra),
        response_metadata=without_surrogates(kept),
    )


def was_cut(reply: AIMessage) -> bool:
    """Say whether a reply ended at the model's length limit, in any provider's words."""
    reasons = (reply.response_metadata.get(key) for key in FINISH_KEYS)
    return any(str(reason).lower() in ("length", "max_tokens") for reason in reasons)


def legal_name(name: str) -> str:
    """Return a tool name that every server takes; what the model wrote, if it is legal."""
    if TOOL_NAME.fullmatch(name):
        return name
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unnamed"


def without_surrogates(value: Any) -> Any:
    """Replace lone surrogates in texts: they can be stored nowhere and sent to nobody."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {without_surrogates(key): without_surrogates(item) for key, item in items}
    if isinstance(value, list):
        return [without_surrogates(item) for item in cast("list[Any]", value)]
    return value


def _call_ids(history: Iterable[AnyMessage]) -> set[str | None]:
    return {
        made["id"]
        for message in history
        if isinstance(message, AIMessage)
        for made in (*message.tool_calls, *message.invalid_tool_calls)
    }


def _broken(call_id: str, name: str, problem: str) -> InvalidToolCall:
    # The arguments are told in `error`: a megabyte of broken JSON is worth nothing.
    return InvalidToolCall(
        id=call_id,
        name=name,
        args="",
        error=without_surrogates(problem),
        type="invalid_tool_call",
    )
