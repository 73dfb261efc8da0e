"""LangGraph's incremental channel and the reducer of messages for it, which are not settled yet.

`DeltaChannel` is public but beta: its interface and what it stores may change. The reducer has no
public name at all; `MessagesState` has only the one that writes the whole list each time. Both are
as langgraph 1.2.20 to 1.2.22 has them, and are imported here alone: what a later version changes
is to be met here.
"""

from typing import Any, cast

from langgraph.channels import DeltaChannel
from langgraph.graph.message import _messages_delta_reducer  # pyright: ignore[reportPrivateUsage]

__all__ = ["DeltaChannel", "merge_messages"]

merge_messages: Any = cast("Any", _messages_delta_reducer)  # typed otherwise than the channel asks
