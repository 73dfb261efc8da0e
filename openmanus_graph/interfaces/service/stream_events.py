"""The events of a run for apps that embed a graph, as `openmanus run --json` writes them."""

import asyncio
import datetime
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.types import StateSnapshot

from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.conversation.history import last_user_message
from openmanus_graph.interfaces.service import run_view
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.state.context import Context

_UNNAMED = "without-a-thread"


async def stream_events(
    graph: Any, input: Any, config: RunnableConfig | None = None, *, context: Context | None = None
) -> AsyncGenerator[dict[str, Any]]:
    """Run a graph and yield the events of the run (docs/events.md), from `run_start` to `final`.

    A question yields `interrupt`, and the run ends with the status `waiting`. To answer it, call
    this again with `Command(resume={ID_OF_THE_QUESTION: ANSWER})`.

    Args:
        graph: One of our graphs, compiled. Questions and crashes need its `checkpointer`.
        input: `{"messages": [...]}`, a `Command`, or None to go on after a crash.
        config: As for `graph.astream`.
        context: The run's settings.

    Raises:
        ConfigError: The settings are wrong.
    """
    thread = str((config or {}).get("configurable", {}).get("thread_id") or "")
    saved = bool(graph.checkpointer)
    settings = await asyncio.to_thread(resolve_settings, context or Context(), thread or _UNNAMED)
    folder = settings.workspace
    state = await graph.aget_state(config) if saved else _finished_state({})
    given = cast("Mapping[str, Any]", input if isinstance(input, Mapping) else state.values)
    asked = last_user_message(given.get("messages", []))
    yield _sent(
        thread,
        type="run_start",
        task=asked.text if asked else "",
        agent=graph.name,
        model=run_view.model_label(settings),
        workspace="" if folder.name == _UNNAMED else str(folder),  # it is made when the run begins
    )
    tagger, open_questions = run_view.StepEventTagger(), set[str]()
    parts = graph.astream(
        input,
        config,
        context=context,
        stream_mode=["custom", "values"],
        subgraphs=True,
        version="v2",
        durability="sync" if saved else None,
    )
    async with aclosing(parts):
        async for part in parts:
            if part["type"] == "values":
                state = state if part["ns"] else _finished_state(part["data"])
            elif event := tagger.event(part["ns"], part["data"]):
                open_questions |= {event["id"]} if event["type"] == "interrupt" else set()
                yield _sent(thread, **event)
    if saved:
        state = await graph.aget_state(config)
    for task in state.tasks:
        for waiting in task.interrupts:
            if waiting.id not in open_questions:  # a plan's step sends its question at once
                step = tagger.step_at((f"{task.name}:{task.id}",))
                yield _sent(thread, **step, **interrupt_event(waiting))
    yield _sent(thread, **run_view.final_event(state, cancelled=False))


def _sent(thread: str, **event: Any) -> dict[str, Any]:
    now = datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="milliseconds")
    return {**event, "thread": thread, "ts": now}


def _finished_state(values: Mapping[str, Any]) -> StateSnapshot:
    return StateSnapshot(dict(values), (), {"configurable": {}}, None, None, None, (), ())
