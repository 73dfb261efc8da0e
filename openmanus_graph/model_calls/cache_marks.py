"""Marks for providers whose prompt cache works only where it is asked for."""

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage

Block = dict[str, Any]


def with_cache_marks(
    messages: Sequence[BaseMessage], provider: str, model_name: str, stable: int | None = None
) -> list[BaseMessage]:
    """Return the request with the provider's cache marks; others are left as they are.

    The end of the system message is marked, since it is the same in every run, and the end of
    what later requests will begin with.

    Args:
        messages: The request; it is not changed.
        provider: One of `spec.PROVIDERS`.
        model_name: Without the provider.
        stable: How many messages stay as they are in the next request; the request suffix at the
            end does not. None: all.
    """
    marked = list(messages)
    mark = _mark_of(provider, model_name.lower())
    if mark is None:
        return marked
    ends = {0} if marked and isinstance(marked[0], SystemMessage) else set[int]()
    last = (len(marked) if stable is None else stable) - 1
    if last >= 0 and "nova" not in model_name.lower():  # Nova takes no mark beside tool results
        ends.add(last)
    for position in ends:
        marked[position] = _marked(marked[position], mark)
    return marked


def _mark_of(provider: str, model: str) -> Callable[[list[Block]], list[Block]] | None:
    claude = "claude" in model
    if provider == "anthropic" or (provider == "openrouter" and claude):
        return _anthropic
    if provider == "bedrock" and (claude or "nova" in model):
        return _bedrock
    return None


def _anthropic(blocks: list[Block]) -> list[Block]:
    return [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]


def _bedrock(blocks: list[Block]) -> list[Block]:
    return [*blocks, {"cachePoint": {"type": "default"}}]


def _marked(message: BaseMessage, mark: Callable[[list[Block]], list[Block]]) -> BaseMessage:
    content = message.content
    parts = [content] if isinstance(content, str) else content
    blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    # An empty text takes no mark, and thinking may not be changed.
    if not blocks or blocks[-1].get("type") != "text" or not blocks[-1].get("text"):
        return message
    return message.model_copy(update={"content": mark(blocks)})
