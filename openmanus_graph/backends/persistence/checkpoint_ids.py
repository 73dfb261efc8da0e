"""The one place that reaches into LangGraph's checkpoint ids; docs/adr/0005 says why.

Ids begin with the time, and the greatest counts as the newest checkpoint.
"""

from typing import Any, cast

from langgraph.checkpoint.base import id as uuid6_module


def continue_after(checkpoint_id: str) -> None:
    """Have this process's later ids sort after a checkpoint that another process may have saved.

    Without this they would not if the clock was set back between the two.
    """
    ids = cast("Any", uuid6_module)  # the newest id's time has no public name
    newest = getattr(ids, "_last_v6_timestamp", None) or 0
    ids._last_v6_timestamp = max(newest, uuid6_module.UUID(checkpoint_id).time)
