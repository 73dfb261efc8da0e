"""`openmanus show` and `export`: what was said and done in a thread.

`export` writes it as Markdown, as a page that plays it, or as a bundle for `replay`.
"""

import asyncio
import contextlib
import json
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from langchain_core.messages import BaseMessage, messages_to_dict
from langgraph.types import Command

from openmanus_graph.backends.persistence.bundles import is_bundle, load_bundle, save_bundle
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.journal import JournalTable
from openmanus_graph.backends.persistence.recording import Recording, put_beginning
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url
from openmanus_graph.config.secret_values import known_secrets
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import agent_names, build_agent
from openmanus_graph.interfaces.cli.console import MarkdownBlocks, Rendered, SafeConsole
from openmanus_graph.interfaces.cli.threads import LatestThread, complete_thread
from openmanus_graph.interfaces.server.player import player_page
from openmanus_graph.interfaces.service import replay as replaying
from openmanus_graph.interfaces.service import run_setup, run_view, thread_view, threads
from openmanus_graph.interfaces.service.call_titles import with_titles
from openmanus_graph.interfaces.service.options import RunOptions, StorageOptions, takes
from openmanus_graph.interfaces.service.runs import resolve_workspace, thread_options
from openmanus_graph.planning.parallel_batch import plan_at
from openmanus_graph.planning.plan import plan_as_json
from openmanus_graph.runtime.atomic_files import write_own_file
from openmanus_graph.runtime.events import CHUNKS, ObservedRun, observing_runs
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ClaimSource, no_claims
from openmanus_graph.state.settings import Settings

Event = dict[str, Any]


@takes(StorageOptions)
def show(
    thread: LatestThread = None,
    as_json: Annotated[bool, typer.Option("--json", help="The messages as JSON.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Its plan as JSON, for you to edit.")
    ] = False,
    sources: Annotated[
        bool, typer.Option("--sources", help="Where each figure of its answer comes from.")
    ] = False,
) -> int:
    """Show what was said and done in a thread."""
    known = threads.known_thread(threads.thread_id(thread))
    values, runs, asked = asyncio.run(read_thread(known))
    if plan:
        found = thread_view.plan_in(values)
        if found is None:
            raise ConfigError(
                f"Thread {known.id!r} has no plan. Make one with: openmanus plan TASK."
            )
        sys.stdout.write(plan_as_json(found) + "\n")
    elif sources:
        found_in: list[ClaimSource] = values.get("sources") or []
        lines = [run_view.claims_line(values.get("claims") or no_claims())]
        lines += run_view.source_lines(found_in)
        text = json.dumps(found_in, ensure_ascii=False) if as_json else "\n".join(lines)
        sys.stdout.write(text if as_json else printable(text))
        sys.stdout.write("\n")
    elif as_json:
        output: dict[str, Any] = {"messages": []}
        output |= {name: _plain(value) for name, value in values.items()}
        if runs:
            output["step_runs"] = {step: list(map(_plain, each)) for step, each in runs.items()}
        sys.stdout.write(json.dumps(output, ensure_ascii=False, default=str) + "\n")
    else:
        print_markdown(thread_view.transcript(known, values, runs, cut=True))
        if asked:
            how = "--approve, --reject or --answer TEXT, with --id ID if it asks several questions"
            command = f"openmanus resume {shlex.quote(known.id)} {how}"
            sys.stdout.write(f"It waits for you:{asked}\n{command}\n")
    return 0


def print_markdown(parts: Iterable[str]) -> None:
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
    if isinstance(value, list) and value and isinstance(value[0], BaseMessage):
        return messages_to_dict(cast("list[BaseMessage]", value))
    return cast("Any", value)


async def read_thread(thread: Thread) -> tuple[dict[str, Any], thread_view.Runs, str]:
    """Return a thread's state, the conversations of its plan's steps, and its open questions."""
    if thread.agent not in agent_names():
        threads.whole_thread(thread.id)  # raises the right error if the row is damaged
    async with open_checkpointer(database_url()) as checkpointer:
        graph = build_agent(thread.agent, checkpointer=checkpointer)
        state = await graph.aget_state({"configurable": {"thread_id": thread.id}})
        values = dict(state.values)
        # During a parallel batch the workers know more.
        if thread_view.plan_in(values) and state.tasks:
            values = dict(await plan_at(graph, state.config))
        values, runs = await thread_view.read_conversations(graph, checkpointer, thread.id, values)
        return values, runs, run_view.questions_of(state)


@takes(StorageOptions)
def export(
    thread: Annotated[
        str,
        typer.Argument(
            metavar="THREAD|BUNDLE",
            help="A thread's id, or a unique beginning of it; for --html also a bundle's file.",
            autocompletion=complete_thread,
        ),
    ],
    output: Annotated[str, typer.Option(help="File to write; - is stdout.")] = "-",
    bundle: Annotated[
        str | None, typer.Option(help="Zip file for its record, which `replay` reads anywhere.")
    ] = None,
    html: Annotated[
        str | None, typer.Option(help="HTML file that plays it in a browser, without a server.")
    ] = None,
) -> int:
    """Write a thread as Markdown, a page, or a bundle for `replay`."""
    if html is not None and bundle is not None:
        raise ConfigError("--html and --bundle cannot be used together. Give one of them.")
    if html is not None:
        return _export_page(thread, html)
    known = threads.thread_id(thread)
    if bundle is not None:
        record = asyncio.run(replaying.record_of(threads.whole_thread(known)))
        try:
            save_bundle(record, Path(bundle))
        except OSError as error:
            raise ConfigError(f"{bundle} cannot be written: {error.strerror}.") from error
        sys.stderr.write(
            f"{printable(bundle)} holds thread {known}. Replay it: openmanus replay FILE\n"
        )
        return 0
    shown = threads.known_thread(known)
    values, runs, _ = asyncio.run(read_thread(shown))
    lines = thread_view.transcript(shown, values, runs, cut=False)
    text = printable("\n".join(lines) + "\n")
    if output == "-":
        sys.stdout.write(text)
    else:
        write_own_file(output, text)
    return 0


def _export_page(source: str, file: str) -> int:
    if is_bundle(Path(source)):
        record = load_bundle(Path(source))
        title, config, workspace = record.task, None, None
        events, _ = asyncio.run(_replayed_events(record, record))
    else:
        known = threads.whole_thread(threads.thread_id(source))
        title, config = known.title, known.options.get("config")
        workspace = resolve_workspace(thread_options(RunOptions(), known.id), known.id)
        events = _events_of(known)
    secrets = known_secrets(config)
    blank = {"run": "", "ns": "", "ts": ""}
    numbered = (
        json.dumps({**blank, **with_titles(event), "seq": number}, default=str)
        for number, event in enumerate(events, 1)
    )
    page = player_page(title, numbered, secrets.remove_from, workspace)
    write_own_file(file, page)
    sys.stderr.write(f"{printable(file)} plays {printable(source)}. Open it in a browser.\n")
    return 0


def _events_of(known: Thread) -> list[Event]:
    """Return a thread's events: as the server kept them, else from its record or its messages."""
    table = JournalTable(open_database(database_url()))
    found: list[Event] = []
    with threads.hold_thread(openmanus_home(), known.id):
        after = 0
        while rows := table.read(known.id, after):
            found += [json.loads(text) for _, text in rows]
            after = rows[-1][0]
    if found:
        return found
    with contextlib.suppress(ConfigError):
        record = asyncio.run(replaying.record_of(known))
        events, replayed = asyncio.run(_replayed_events(record, known))
        if not replayed.ended:
            return events
    values, runs, _ = asyncio.run(read_thread(known))
    state = asyncio.run(run_setup.read_thread_state(known.id, known.agent)).state
    events = [*thread_view.stored_events(known, values, runs)]
    if known.status not in ("running", "interrupted"):
        events.append(run_view.final_event(state, cancelled=known.status == "cancelled"))
    return events


async def _replayed_events(
    record: Recording, source: Recording | Thread
) -> tuple[list[Event], replaying.Replayed]:
    """Replay a record; return the events of the conversation before it and of its runs."""
    graph = replaying.replay_graph(record.agent)
    seen = _Observer(record, graph)
    before = replaying.replay_graph(record.agent)
    await put_beginning(before.checkpointer, record.thread, record.beginning)
    state = await before.aget_state({"configurable": {"thread_id": record.thread}})
    seen.events += thread_view.events_from_messages(record, state.values.get("messages", []))
    context = run_setup.to_context(RunOptions().over(dict(record.options)))
    with observing_runs(seen):
        if isinstance(source, Thread):
            found = await replaying.replay_thread(source, context, graph=graph)
        else:
            found = await replaying.replay_bundle(source, context, graph=graph)
    if found.ended:
        seen.events.append({"type": "notice", "level": "warning", "text": found.ended})
    return seen.events, found


class _Observer:
    """Collects the events of replayed runs, without durations: the replay took no time."""

    def __init__(self, record: Recording, graph: Any) -> None:
        self.events: list[Event] = []
        self._record, self._graph = record, graph

    async def on_start(self, run: ObservedRun, settings: Settings, context: Context | None) -> None:
        del settings, context
        kind, task = "resume", self._record.task
        if run.given is not None and not isinstance(run.given, Command):
            kind, task = "start", run.given["messages"][-1].text
        shared = {"type": "run_start", "kind": kind, "run": run.id, "workspace": ""}
        named = {"agent": self._record.agent, "model": self._record.model, "task": task}
        self.events.append({**shared, **named})

    def on_event(self, run: str, thread: str, plan_step: str, event: Event) -> None:
        del thread
        if event["type"] in CHUNKS:
            return  # the whole text follows
        untimed = {"seconds": None} if "seconds" in event else {}
        self.events.append({**event, **untimed, "run": run, "ns": plan_step})

    async def on_end(self, run: ObservedRun, error: BaseException | None) -> None:
        if error is not None:
            return
        config = {"configurable": {"thread_id": run.thread}}
        state = await self._graph.aget_state(config)
        usage = await run_view.read_usage(self._graph, config, state)
        self.events.append({**run_view.final_event(state, usage, cancelled=False), "run": run.id})
