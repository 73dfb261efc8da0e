"""Reads the conversations of a plan's steps: each run of a step has its own checkpoints."""

import re
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AnyMessage

from openmanus_graph.backends.persistence.checkpoints import LeanSqliteSaver
from openmanus_graph.planning.flow import plan_of
from openmanus_graph.state.plan import Plan

Runs = Mapping[str, list[list[AnyMessage]]]
"""By step: the conversation of each of its runs, oldest first."""


def plan_in(values: Mapping[str, Any]) -> Plan | None:
    """Return the plan that a thread's state holds, if it is a planning graph's and has one."""
    if not values.get("order"):
        return None
    return plan_of(values)  # type: ignore[arg-type]  # `order` is the planning state's alone


async def runs_of_steps(
    graph: Any, checkpointer: LeanSqliteSaver, thread: str, values: Mapping[str, Any]
) -> Runs:
    """Read the conversations of the newest plan's steps."""
    found: dict[str, list[tuple[tuple[int, int], list[AnyMessage]]]] = {}
    if plan_in(values) is None:
        return {}
    for namespace in await checkpointer.namespaces(thread):
        if namespace.count("|") != 1:
            continue  # the flow itself, a step around its executor, or a graph within that
        place = {"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}
        state = await graph.aget_state(place)
        messages: list[AnyMessage] = state.values.get("messages") or []
        run = _run_of(messages, values["run_message"])
        if run is not None:
            found.setdefault(run[0], []).append((run[1], messages))
    return {
        step: [messages for _, messages in sorted(runs, key=lambda run: run[0])]
        for step, runs in found.items()
    }


def _run_of(messages: list[AnyMessage], begun: str) -> tuple[str, tuple[int, int]] | None:
    """Read step, replan and attempt from the id of the message that a step's run begins with."""
    name = (messages[0].id or "") if messages else ""
    match = re.fullmatch(rf"{re.escape(begun)}(?:@[^/]*)*/(\d+)/(.+)/(\d+)", name)
    return match and (match[2], (int(match[1]), int(match[3])))
