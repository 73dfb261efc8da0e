"""`openmanus show`, `export`, `tell` and `threads --delete`."""

import asyncio
import json
import shlex
import sys
from collections.abc import Iterable
from typing import Any, cast

from langchain_core.messages import BaseMessage, messages_to_dict

from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.steering import tell
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import agent_names, build_agent
from openmanus_graph.interfaces.cli.markdown_blocks import MarkdownBlocks
from openmanus_graph.interfaces.cli.safe_console import SafeConsole
from openmanus_graph.interfaces.cli.screen import Rendered
from openmanus_graph.interfaces.service.threads import (
    forget_thread,
    hold_thread,
    is_running,
    known_thread,
    whole_thread,
)
from openmanus_graph.interfaces.service.transcript import (
    Runs,
    plan_in,
    questions_of,
    runs_of_steps,
    transcript,
)
from openmanus_graph.planning.parallel_batch import plan_at
from openmanus_graph.planning.plan_view import plan_as_json
from openmanus_graph.runtime.atomic_files import write_own_file
from openmanus_graph.runtime.output import printable


def delete_thread(thread: str) -> int:
    """Delete a thread with all that is kept of it; its workspace stays."""
    home = openmanus_home()
    known_thread(thread)
    with hold_thread(home, thread):
        asyncio.run(_delete_checkpoints(thread))
        forget_thread(thread)
    sys.stderr.write(f"Deleted thread {thread}. Its workspace was left alone.\n")
    return 0


def show_thread(thread: str, *, as_json: bool) -> int:
    """Print what was said and done."""
    known = known_thread(thread)
    values, runs, asked = asyncio.run(read_thread(known))
    if as_json:
        defaults: dict[str, Any] = {"messages": []}
        output = defaults | {name: _plain(value) for name, value in values.items()}
        if runs:
            output["step_runs"] = {step: list(map(_plain, each)) for step, each in runs.items()}
        sys.stdout.write(json.dumps(output, ensure_ascii=False, default=str) + "\n")
        return 0
    _print_markdown(transcript(known, values, runs, cut=True))
    if asked:
        answer = "--approve, --reject or --answer TEXT, with --id ID where it asks several"
        sys.stdout.write(
            f"It waits for you:{asked}\nopenmanus resume {shlex.quote(thread)} {answer}\n"
        )
    return 0


def _print_markdown(parts: Iterable[str]) -> None:
    """Write parts of a text to stdout: rendered on a terminal, as they are elsewhere."""
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


def print_plan(thread: str) -> int:
    """Print a thread's plan as JSON that a person may edit and answer with."""
    values, *_ = asyncio.run(read_thread(known_thread(thread)))
    plan = plan_in(values)
    if plan is None:
        raise ConfigError(f"Thread {thread!r} has no plan. Make one with: openmanus plan TASK.")
    sys.stdout.write(plan_as_json(plan) + "\n")
    return 0


def export_thread(thread: str, output: str) -> int:
    """Write a thread as Markdown."""
    known = known_thread(thread)
    values, runs, _ = asyncio.run(read_thread(known))
    text = printable("\n".join(transcript(known, values, runs, cut=False)) + "\n")
    if output == "-":
        sys.stdout.write(text)
        return 0
    write_own_file(output, text)
    return 0


async def read_thread(thread: Thread) -> tuple[dict[str, Any], Runs, str]:
    """Return a thread's state, the conversations of its plan's steps, and its open questions."""
    if thread.agent not in agent_names():
        whole_thread(thread.id)  # raises the right error if the row is damaged
    async with open_checkpointer(database_url()) as checkpointer:
        graph = build_agent(thread.agent, checkpointer=checkpointer)
        state = await graph.aget_state({"configurable": {"thread_id": thread.id}})
        values = dict(state.values)
        if (
            plan_in(values) and state.tasks
        ):  # in the middle of a parallel batch the workers know more
            values = dict(await plan_at(graph, state.config))
        runs = await runs_of_steps(graph, checkpointer, thread.id, values)
        return values, runs, questions_of(state)


def _plain(value: Any) -> Any:
    """Return messages as JSON can hold them."""
    if isinstance(value, list) and value and isinstance(value[0], BaseMessage):
        return messages_to_dict(cast("list[BaseMessage]", value))
    return cast("Any", value)


async def _delete_checkpoints(thread: str) -> None:
    async with open_checkpointer(database_url()) as checkpointer:
        await checkpointer.adelete_thread(thread)


def tell_thread(thread: str, text: str) -> int:
    """Store a steering message for a thread, and print when it will be read."""
    known = known_thread(thread)
    said = sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text
    asyncio.run(tell(known.id, said))
    if is_running(openmanus_home(), known.id):
        sys.stderr.write("The agent reads it at its next step.\n")
    else:
        again = f"openmanus resume {shlex.quote(known.id)}"
        sys.stderr.write(f"The agent is not at work. It reads this when it goes on: {again}\n")
    return 0
