"""Finds the whole conversation: results that were shortened, and what compactions replaced."""

import asyncio
import re
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

from langchain_core.messages import AnyMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph

from openmanus_graph.conversation.answer_sources import Observations
from openmanus_graph.conversation.history import BEFORE_KEY, NOTES_KEY, as_said
from openmanus_graph.runtime.checkpoint_lineage import CHECKPOINTER_KEY, outer_namespace
from openmanus_graph.runtime.output import MARK
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.safety.open_beneath import read_beneath
from openmanus_graph.state.manus import ManusInput

_MOST_BYTES = 256 << 20
"""Of all that is read for one check."""
_STORED_AT = re.compile(r'read_file\(path="([^"]+)"|the whole is in (\S+) \.\.\.\]')


@cache
def _reader() -> Any:
    """Return a graph that reads the messages of any checkpoint."""

    async def read(state: ManusInput) -> dict[str, Any]:  # it never runs
        return {}

    builder = StateGraph(ManusInput)
    builder.add_node("read", read)
    builder.add_edge(START, "read")
    return builder.compile()


async def whole_conversation(
    saver: BaseCheckpointSaver[Any] | None,
    thread: str,
    messages: Sequence[AnyMessage],
    namespace: str = "",
) -> list[AnyMessage]:
    """Return a conversation as it was said, including what compaction has replaced since.

    If the checkpoint of an earlier part is gone, that part is missing.
    """
    parts = [messages]
    while saver is not None and (before := _whole_at(parts[0])):
        place = {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": before}
        inside = {"configurable": {**place, CHECKPOINTER_KEY: saver}}
        parts.insert(0, (await _reader().aget_state(inside)).values.get("messages", []))
    said: dict[Any, AnyMessage] = {}
    for message in chain(*parts):
        said.setdefault(message.id or id(message), message)
    return [as_said(message) for message in said.values()]


def _whole_at(messages: Sequence[AnyMessage]) -> str:
    """Return the id of the checkpoint with the whole of a compacted conversation, or nothing."""
    return next(
        (kept for one in reversed(messages) if (kept := one.additional_kwargs.get(BEFORE_KEY))), ""
    )


async def observations_of(
    messages: Sequence[AnyMessage], workspace: Workspace, config: RunnableConfig
) -> Observations:
    """Return what the messages show only in part, in a node that runs with this config."""
    earlier, complete = list[AnyMessage](), True
    if any(NOTES_KEY in one.additional_kwargs for one in messages):
        configurable = config.get("configurable", {})
        saver, thread = configurable.get(CHECKPOINTER_KEY), str(configurable.get("thread_id"))
        whole = await whole_conversation(saver, thread, messages, outer_namespace(config))
        kept = {one.id for one in messages}
        earlier = [one for one in whole if one.id not in kept]
        complete = not any(NOTES_KEY in one.additional_kwargs for one in whole)
    return await asyncio.to_thread(_with_results, messages, earlier, complete, workspace)


def _with_results(
    messages: Sequence[AnyMessage],
    earlier: Sequence[AnyMessage],
    complete: bool,  # called by `to_thread`
    workspace: Workspace,
) -> Observations:
    whole, left = dict[str, str](), _MOST_BYTES
    for message in chain(earlier, messages):
        mark = MARK.search(message.text) if isinstance(message, ToolMessage) else None
        if mark is None or not isinstance(message, ToolMessage):
            continue
        found = _STORED_AT.search(mark[0])
        try:
            name = workspace.output_named(found[1] or found[2]) if found else None
            data = read_beneath(workspace.outputs, name or "", left, follow=False)
        except (OSError, ValueError):
            complete = False
            continue
        left -= len(data)
        whole[message.tool_call_id] = data.decode("utf-8", "replace")
    return Observations(whole, earlier, complete)
