"""Showing a run, and a graph, in the output of a notebook's cell."""

import asyncio
import importlib
import json
import os
import secrets
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Interrupt

from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.interfaces.notebook.page import (
    RunPage,
    final_html,
    picture_html,
    question_html,
)
from openmanus_graph.interfaces.service.run_view import StepEventTagger
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.runtime.limits import RECURSION_LIMIT
from openmanus_graph.runtime.workspace import Workspace, read_file
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import Artifact
from openmanus_graph.testing.chat_models import (
    RecordedChatModel,
    RecordedPlanModel,
    load_conversations,
    load_recording,
)

ipython: Any = importlib.import_module("IPython.display")  # its functions have no types

REFRESH_S = 0.2
"""A page is sent to the notebook no more often."""
MAX_PICTURE_BYTES = 2_000_000
"""Bytes; a larger one is only named."""

Event = dict[str, Any]
Graph = CompiledStateGraph[Any, Any, Any, Any]


def show_graph(graph: Graph) -> None:
    """Draw a graph. Works offline: the notebook itself renders the drawing."""
    drawing = graph.get_graph().draw_mermaid()
    ipython.display(ipython.Markdown(f"```mermaid\n{drawing}```"))


async def show_run(
    graph: Graph,
    given: Any,
    *,
    thread: str | None = None,
    checkpoint: str | None = None,
    context: Context | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> dict[str, Any]:
    """Run a graph and show it while it runs: thoughts, tool calls, plan, pictures, answer.

    Args:
        graph: Made by one of the builders.
        given: The task as text, a graph input, a `Command`, or None to continue.
        thread: Its id; a new one if left out. Going on, or answering, takes a checkpointer.
        checkpoint: The id of the one to go back to; the newest if left out.
        context: Settings of this run.
        on_event: Is called with each event of the graph, as it comes (`docs/events.md`).

    Returns:
        The state's values: `status, answer, messages, artifacts` and so on.
    """
    context = context or Context()
    thread = thread or f"notebook-{secrets.token_hex(3)}"
    where = {"thread_id": thread} | ({"checkpoint_id": checkpoint} if checkpoint else {})
    config: RunnableConfig = {"configurable": where, "recursion_limit": RECURSION_LIMIT}
    task = {"messages": [HumanMessage(given)]} if isinstance(given, str) else given
    handle = ipython.DisplayHandle()
    handle.display(ipython.HTML(""))
    values = await _follow(graph, task, config, context, handle, on_event)
    values = await _sort_questions(graph, thread, values)
    asked = [interrupt_event(waiting) for waiting in values.get("__interrupt__", ())]
    for question in asked:
        _display(question_html(question))
    if not asked:
        for picture in await asyncio.to_thread(_pictures, values, context, thread):
            _display(picture)
        _display(final_html(values))
    return values


async def _follow(
    graph: Graph,
    task: Any,
    config: RunnableConfig,
    context: Context,
    handle: Any,
    on_event: Callable[[Event], object] | None,
) -> dict[str, Any]:
    page, tagger = RunPage(), StepEventTagger()
    values: dict[str, Any] = {}
    waiting: dict[str, Any] = {}  # calls that wait at the same time are shown one by one
    parts: Any = graph.astream(
        task,
        config,
        context=context,
        stream_mode=["custom", "values"],
        subgraphs=True,
        version="v2",
        durability="sync" if graph.checkpointer else None,
    )
    refresher = asyncio.create_task(_refresh(page, handle))
    try:
        async for part in parts:
            data: Any = part["data"]
            if part["type"] == "values" and not part["ns"]:
                waiting |= {asked.id: asked for asked in part.get("interrupts", ())}
                values = {**data, "__interrupt__": list(waiting.values())}
            event = tagger.event(part["ns"], data) if part["type"] == "custom" else None
            if event is not None:
                page.add(event)
                if on_event is not None:
                    on_event(event)
    finally:
        refresher.cancel()
        page.remove_answer(str(values.get("answer")))
        handle.update(ipython.HTML(page.html()))
    return values


async def _sort_questions(graph: Graph, thread: str, values: dict[str, Any]) -> dict[str, Any]:
    """Sort questions by their calls; they came in the order in which they were asked."""
    came: list[Interrupt] = values.get("__interrupt__", [])
    if not came or not graph.checkpointer:
        return values
    state = await graph.aget_state({"configurable": {"thread_id": thread}})
    return {**values, "__interrupt__": list(state.interrupts)}


async def _refresh(page: RunPage, handle: Any) -> None:
    """Send the page to the notebook whenever it has changed."""
    shown = ""
    while True:
        html = page.html()
        if html != shown:
            handle.update(ipython.HTML(html))
        shown = html
        await asyncio.sleep(REFRESH_S)


def _pictures(values: dict[str, Any], context: Context, thread: str) -> Sequence[str]:
    settings = resolve_settings(context, thread)
    workspace = Workspace.of(settings)
    found: list[str] = []
    artifacts: list[Artifact] = values.get("artifacts") or []
    for artifact in artifacts:
        if artifact["media_type"] not in ("image/png", "image/jpeg", "image/gif", "image/webp"):
            continue
        if artifact["size"] > MAX_PICTURE_BYTES:
            continue
        try:
            data = read_file(workspace, artifact["path"], MAX_PICTURE_BYTES)
        except ToolError:
            continue  # it went away since
        found.append(picture_html(artifact["path"], artifact["media_type"], data))
    return found


def _display(html: str) -> None:
    ipython.display(ipython.HTML(html))


OWN_MODEL = ("OPENMANUS_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL")
"""A notebook uses the reader's own model as soon as one of these is set."""


def recorded_model(name: str) -> RecordedChatModel | RecordedPlanModel | None:
    """Return the recorded model of a notebook, or None if a real one is configured.

    None as `Context.model` means the model of the environment and the configuration files.
    ConfigError if there is no such recording.
    """
    if any(os.environ.get(variable) for variable in OWN_MODEL):
        return None
    folder = resources.files("openmanus_graph.interfaces.notebook") / "recordings"
    with resources.as_file(folder) as recordings:
        path = recordings / f"{name}.json"
        if not path.is_file():
            known = ", ".join(sorted(found.stem for found in recordings.glob("*.json")))
            raise ConfigError(f"There is no recording {name!r}. Available: {known}.")
        if "conversations" in json.loads(path.read_text("utf-8")):
            # Charts go to the model as to one that sees them.
            return RecordedPlanModel(load_conversations(path), profile={"image_inputs": True})
        return RecordedChatModel(load_recording(path))
