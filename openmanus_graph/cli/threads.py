"""`openmanus threads`, `show` and `export`."""

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    ToolMessage,
    messages_to_dict,
)
from rich.console import Console
from rich.table import Table
from rich.text import Text

from openmanus_graph.agents import build_agent
from openmanus_graph.cli.failures import prepare_home
from openmanus_graph.cli.lock import hold_thread, is_running
from openmanus_graph.cli.views import printable
from openmanus_graph.config.resolve import openmanus_home
from openmanus_graph.errors import ConfigError
from openmanus_graph.inbox import open_remarks
from openmanus_graph.persistence.checkpoints import open_checkpointer
from openmanus_graph.persistence.database import open_database
from openmanus_graph.persistence.ledger import open_ledger
from openmanus_graph.persistence.threads import Thread, Threads
from openmanus_graph.state.manus import Artifact

SHOWN_OUTPUT_CHARS = 2000
SHOWN_TASK_CHARS = 60
PIPE_WIDTH = 1000


def open_threads() -> Threads:
    """Open the table of threads of the home folder."""
    home = openmanus_home()
    prepare_home(home)
    return Threads(open_database(home))


def find_thread(thread: str) -> Thread | None:
    """Return a thread, or None when there is none of that name."""
    return open_threads().find(thread)


def known_thread(thread: str) -> Thread:
    """Return a thread. ConfigError, naming the newest, for one that does not exist."""
    threads = open_threads()
    found = threads.find(thread)
    if found is not None:
        return found
    newest = ", ".join(known.id for known in threads.all()[:5])
    raise ConfigError(
        f"There is no thread {thread!r} in {openmanus_home()}. "
        + (f"The newest are: {newest}." if newest else "There are none yet.")
    )


def _as_it_stands(thread: Thread) -> Thread:
    """Tell a run that was cut off from one that goes on."""
    if thread.status != "running" or is_running(openmanus_home(), thread.id):
        return thread
    return replace(thread, status="interrupted")


def list_threads(*, as_json: bool) -> int:
    """List the threads, newest first."""
    known = [_as_it_stands(thread) for thread in open_threads().all()]
    if as_json:
        for thread in known:
            sys.stdout.write(json.dumps(thread.__dict__, ensure_ascii=False) + "\n")
        return 0
    table = Table(box=None)
    ids = [printable(thread.id) for thread in known]
    # An id that is cut cannot be typed into the next command.
    table.add_column("thread", no_wrap=True, min_width=max(map(len, ids), default=0))
    for name in ("status", "agent", "updated"):
        table.add_column(name, no_wrap=True)
    table.add_column("task", no_wrap=True, overflow="ellipsis")
    for shown, thread in zip(ids, known, strict=True):
        task = " ".join(printable(thread.task).split())[:SHOWN_TASK_CHARS]
        table.add_row(shown, thread.status, thread.agent, thread.updated, Text(task))
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    Console(highlight=False, markup=False, width=width).print(table)
    return 0


def delete_thread(thread: str) -> int:
    """Delete a thread with its checkpoints and ledger; its workspace stays."""
    home = openmanus_home()
    known_thread(thread)
    with hold_thread(home, thread):
        asyncio.run(_delete_checkpoints(thread))
        open_ledger(home).forget_thread(thread)
        open_remarks(home).forget_thread(thread)
        open_threads().delete(thread)
    sys.stderr.write(f"Deleted thread {thread}. Its workspace was left alone.\n")
    return 0


def show_thread(thread: str, *, as_json: bool) -> int:
    """Print what was said and done."""
    known = known_thread(thread)
    values = asyncio.run(_values(known))
    if as_json:
        held = {**values, "messages": messages_to_dict(values.get("messages", []))}
        sys.stdout.write(json.dumps(held, ensure_ascii=False, default=str) + "\n")
        return 0
    sys.stdout.write(printable("\n".join(_markdown(known, values, cut=True)) + "\n"))
    return 0


def export_thread(thread: str, output: str) -> int:
    """Write a thread as Markdown."""
    known = known_thread(thread)
    text = printable("\n".join(_markdown(known, asyncio.run(_values(known)), cut=False)) + "\n")
    if output == "-":
        sys.stdout.write(text)
        return 0
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}.") from error
    return 0


async def _values(thread: Thread) -> dict[str, Any]:
    async with open_checkpointer(openmanus_home()) as checkpointer:
        graph = build_agent(thread.agent, checkpointer=checkpointer)
        state = await graph.aget_state({"configurable": {"thread_id": thread.id}})
        return dict(state.values)


async def _delete_checkpoints(thread: str) -> None:
    async with open_checkpointer(openmanus_home()) as checkpointer:
        await checkpointer.adelete_thread(thread)


def _markdown(thread: Thread, values: dict[str, Any], *, cut: bool) -> Iterator[str]:
    yield f"# Thread {thread.id}\n\n{thread.agent} · {thread.status} · {thread.updated}\n"
    for message in values.get("messages", []):
        yield from _message(message, cut=cut)
    usage = values.get("usage")
    if usage:
        yield (
            f"---\n{usage['model_calls']} model calls, {usage['input_tokens']} tokens in, "
            f"{usage['output_tokens']} out, ${usage['cost_usd']:.4f}"
        )
    artifacts: list[Artifact] = values.get("artifacts") or []
    for artifact in artifacts:
        yield f"- `{artifact['path']}` ({artifact['size']} bytes)"


def _message(message: AnyMessage, *, cut: bool) -> Iterator[str]:
    text = str(message.text)
    if isinstance(message, HumanMessage):
        yield f"## User\n\n{text}\n"
    elif isinstance(message, AIMessage):
        yield f"## Agent\n\n{text}\n" if text.strip() else "## Agent\n"
        for call in message.tool_calls:
            args = json.dumps(call["args"], ensure_ascii=False, indent=1)
            yield f"**{call['name']}**\n\n{_fenced(args, 'json')}"
    elif isinstance(message, ToolMessage):
        if cut and len(text) > SHOWN_OUTPUT_CHARS:
            left_out = len(text) - SHOWN_OUTPUT_CHARS
            text = f"{text[:SHOWN_OUTPUT_CHARS]}\n[... {left_out} more characters]"
        yield f"{message.name} ({message.status}):\n\n{_fenced(text)}"


def _fenced(text: str, language: str = "") -> str:
    fence = "`" * max(3, _longest_fence(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}\n"


def _longest_fence(text: str) -> int:
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest
