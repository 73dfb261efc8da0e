"""Going back: the points of a thread's history, and new threads that begin at one of them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import TASKS
from langgraph.constants import START
from langgraph.types import Overwrite

from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.conversation.environment import ENVIRONMENT_KEY
from openmanus_graph.runtime.checkpoint_lineage import (
    SNAPSHOT_KEY,
    id_of,
    snapshot_written_after,
)

SHOWN_CHARS = 100


@dataclass(frozen=True)
class Point:
    """A checkpoint that a thread can be taken up at."""

    number: int
    """LangGraph's number of the superstep."""
    checkpoint: str
    ts: str
    """When it was saved: ISO 8601, UTC."""
    what: str
    """What had happened just before; empty if nothing that shows."""
    ended: bool
    """A run had ended there."""


async def points_of(saver: Checkpointer, thread: str) -> list[Point]:
    """Return the points of a thread's current branch, oldest first."""
    config: RunnableConfig = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    found = {id_of(one.config): one async for one in saver.alist(config)}  # newest first
    line: list[CheckpointTuple] = []
    name = next(iter(found), "")
    while name in found:
        line.append(found[name])
        name = id_of(found[name].parent_config)
    line.reverse()
    return [
        Point(
            number=int(one.metadata.get("step", 0)),
            checkpoint=id_of(one.config),
            ts=one.checkpoint["ts"],
            what="; ".join(_written_after(before)),
            ended=_has_ended(one),
        )
        for before, one in zip(line, line[1:], strict=False)
        if one.metadata.get("source") != "input"  # its message is only there at the next one
    ]


async def fork(saver: Checkpointer, old: str, checkpoint: str, new: str) -> None:
    """Begin a new thread with a copy of another one's history up to a checkpoint.

    Its calls have the new thread's keys in the ledger, so none counts as done. Of what was written
    after the checkpoint, it gets the snapshot of the files as they are there.
    """
    await saver.acopy_line(old, checkpoint, new)
    at = {"checkpoint_ns": "", "checkpoint_id": checkpoint}
    found = await saver.aget_tuple({"configurable": {"thread_id": old, **at}})
    if found is not None and (written := snapshot_written_after(found)):
        copied: RunnableConfig = {"configurable": {"thread_id": new, **at}}
        # Under the id of no task, or LangGraph would take that node's task for done.
        await saver.aput_writes(copied, list(written.items()), SNAPSHOT_KEY)


def _has_ended(point: CheckpointTuple) -> bool:
    values = point.checkpoint["channel_values"]
    return not values.get(TASKS) and not any(
        name == START or name.startswith("branch:to:") for name in values
    )


def _written_after(before: CheckpointTuple) -> Iterator[str]:
    """Say what the superstep after a checkpoint wrote."""
    for _, channel, value in before.pending_writes or ():
        if channel == "messages":
            if isinstance(value, Overwrite):
                yield "the conversation was compacted"
                continue
            messages = cast("list[AnyMessage]", value if isinstance(value, list) else [value])
            # With an environment it is the user message that an earlier superstep wrote.
            new = (one for one in messages if ENVIRONMENT_KEY not in one.additional_kwargs)
            yield from map(_message_line, new)
        elif channel == "order":
            yield f"planned {len(value)} steps"
        elif channel == "steps" and isinstance(value, dict):
            yield from _step_lines(cast("dict[str, Any]", value))


def _message_line(message: AnyMessage) -> str:
    text = _shorten(message.text)
    if isinstance(message, ToolMessage):
        return f"{message.name} {'failed' if message.status == 'error' else 'gave'}: {text}"
    if isinstance(message, AIMessage):
        made = [
            f"{call['name']}({json.dumps(call['args'], ensure_ascii=False)})"
            for call in message.tool_calls
        ]
        return " ".join(filter(None, (f"agent: {text}" if text else "", *map(_shorten, made))))
    return f"you: {text}"


def _step_lines(changed: dict[str, dict[str, Any] | None]) -> Iterator[str]:
    for name, fields in changed.items():
        status = (fields or {}).get("status") or (fields or {}).get("outcome")
        if status:
            yield f"step {name}: {status}"


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]}…"


def find_point(points: Sequence[Point], at: str) -> Point | None:
    """Return the point with that number, or whose checkpoint's id it is."""
    return next((point for point in points if at in (str(point.number), point.checkpoint)), None)
