"""Finds the whole texts of results that were shortened, or that a compaction has replaced."""

import json
import re
from collections.abc import Sequence
from typing import cast

from langchain_core.messages import (
    AnyMessage,
    HumanMessage,
    ToolMessage,
    messages_from_dict,
    messages_to_dict,
)

from openmanus_graph.conversation.evidence import Observations
from openmanus_graph.conversation.history import SEEN_KEY, last_user_message
from openmanus_graph.runtime.output import MARK
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.safety.open_beneath import read_beneath

_MOST_BYTES = 256 << 20
"""Of all that is read for one check."""
_STORED_AT = re.compile(r'read_file\(path="([^"]+)"|the whole is in (\S+) \.\.\.\]')


def keep_replaced(
    before: Sequence[AnyMessage], after: Sequence[AnyMessage], workspace: Workspace
) -> list[AnyMessage]:
    """Store the messages that a compaction has replaced, and name the file in the rest. Blocks."""
    kept = {(message.id, str(message.content)) for message in after}
    old = [message for message in before if (message.id, str(message.content)) not in kept]
    task = last_user_message(after)
    if task is None:
        return [*after]
    try:
        data = json.dumps(messages_to_dict(old), default=str).encode()
        name = workspace.keep(data, ".json").name
    except (OSError, ValueError):  # a full disk: answers are not checked against them
        return [*after]
    seen = [*task.additional_kwargs.get(SEEN_KEY, ()), name]
    extra = {**task.additional_kwargs, SEEN_KEY: seen}
    named = task.model_copy(update={"additional_kwargs": extra})
    return [named if message is task else message for message in after]


def observations_of(messages: Sequence[AnyMessage], workspace: Workspace) -> Observations:
    """Return what the messages show only in part. Blocks."""
    whole, earlier, left = dict[str, str](), list[AnyMessage](), _MOST_BYTES
    complete, pending, known = True, [*messages], set[str]()
    while pending:
        message = pending.pop()
        names = message.additional_kwargs.get(SEEN_KEY, ())
        if isinstance(message, ToolMessage) and (mark := MARK.search(message.text)):
            found = _STORED_AT.search(mark[0])
            named = workspace.output_named(found[1] or found[2]) if found else None
            names = [named] if named else []
            complete &= bool(names)
        for name in {*names} - known:
            known.add(name)
            try:
                data = read_beneath(workspace.outputs, name, left, follow=False)
                left -= len(data)
                if isinstance(message, HumanMessage):
                    replaced = cast("list[AnyMessage]", messages_from_dict(json.loads(data)))
                    earlier += replaced
                    pending += replaced
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                complete = False
                continue
            if isinstance(message, ToolMessage):
                whole[message.tool_call_id] = data.decode("utf-8", "replace")
    return Observations(whole, earlier, complete)
