"""`openmanus show`: what was said and done in a thread."""

import asyncio
import json
import shlex
import sys
from collections.abc import Iterable
from typing import Annotated, Any, cast

import typer
from langchain_core.messages import BaseMessage, messages_to_dict

from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import agent_names, build_agent
from openmanus_graph.interfaces.cli.console import SafeConsole
from openmanus_graph.interfaces.cli.markdown import MarkdownBlocks, Rendered
from openmanus_graph.interfaces.cli.threads import LatestThread
from openmanus_graph.interfaces.service.options import StorageOptions, takes
from openmanus_graph.interfaces.service.threads import known_thread, thread_id, whole_thread
from openmanus_graph.interfaces.service.transcript import (
    Runs,
    plan_in,
    questions_of,
    runs_of_steps,
    transcript,
)
from openmanus_graph.planning.parallel_batch import plan_at
from openmanus_graph.planning.plan import plan_as_json
from openmanus_graph.runtime.output import printable


@takes(StorageOptions)
def show(
    thread: LatestThread = None,
    as_json: Annotated[bool, typer.Option("--json", help="The messages as JSON.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Its plan as JSON, for you to edit.")
    ] = False,
) -> int:
    """Show what was said and done in a thread."""
    known = known_thread(thread_id(thread))
    values, runs, asked = asyncio.run(read_thread(known))
    if plan:
        found = plan_in(values)
        if found is None:
            raise ConfigError(
                f"Thread {known.id!r} has no plan. Make one with: openmanus plan TASK."
            )
        sys.stdout.write(plan_as_json(found) + "\n")
        return 0
    if as_json:
        defaults: dict[str, Any] = {"messages": []}
        output = defaults | {name: _plain(value) for name, value in values.items()}
        if runs:
            output["step_runs"] = {step: list(map(_plain, each)) for step, each in runs.items()}
        sys.stdout.write(json.dumps(output, ensure_ascii=False, default=str) + "\n")
        return 0
    _print_markdown(transcript(known, values, runs, cut=True))
    if asked:
        answer = "--approve, --reject or --answer TEXT, with --id ID if it asks several questions"
        sys.stdout.write(
            f"It waits for you:{asked}\nopenmanus resume {shlex.quote(known.id)} {answer}\n"
        )
    return 0


def _print_markdown(parts: Iterable[str]) -> None:
    """Write parts of a text to stdout: rendered on a terminal, unchanged elsewhere."""
    console = SafeConsole(highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        sys.stdout.write(printable("\n".join(parts) + "\n"))
        return
    divided = MarkdownBlocks()
    for part in parts:
        for block in divided.feed(f"{part}\n"):
            console.print(Rendered(block))
            console.print()
    console.print(Rendered(divided.finish()))


def _plain(value: Any) -> Any:
    """Return messages in a form that JSON can hold."""
    if isinstance(value, list) and value and isinstance(value[0], BaseMessage):
        return messages_to_dict(cast("list[BaseMessage]", value))
    return cast("Any", value)


async def read_thread(thread: Thread) -> tuple[dict[str, Any], Runs, str]:
    """Return a thread's state, the conversations of its plan's steps, and its open questions."""
    if thread.agent not in agent_names():
        whole_thread(thread.id)  # raises the right error if the row is damaged
    async with open_checkpointer(database_url()) as checkpointer:
        graph = build_agent(thread.agent, checkpointer=checkpointer)
        state = await graph.aget_state({"configurable": {"thread_id": thread.id}})
        values = dict(state.values)
        if plan_in(values) and state.tasks:  # during a parallel batch the workers know more
            values = dict(await plan_at(graph, state.config))
        runs = await runs_of_steps(graph, checkpointer, thread.id, values)
        return values, runs, questions_of(state)
