"""`openmanus export`: a thread as Markdown, as a page that plays it, or as a bundle."""

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from langgraph.types import Command

from openmanus_graph.backends.persistence.bundles import is_bundle, load_bundle, save_bundle
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.recording import Recording, put_beginning
from openmanus_graph.backends.persistence.threads import JournalTable, Thread
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url
from openmanus_graph.config.secret_values import known_secrets
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import build_agent
from openmanus_graph.interfaces.cli.show import read_thread
from openmanus_graph.interfaces.cli.threads import complete_thread
from openmanus_graph.interfaces.server.player import player_page
from openmanus_graph.interfaces.service import replay as replaying
from openmanus_graph.interfaces.service.options import RunOptions, StorageOptions, takes
from openmanus_graph.interfaces.service.run_setup import to_context
from openmanus_graph.interfaces.service.run_view import (
    events_from_messages,
    final_event,
    read_usage,
    transcript,
)
from openmanus_graph.interfaces.service.threads import (
    hold_thread,
    known_thread,
    thread_id,
    whole_thread,
)
from openmanus_graph.runtime.atomic_files import write_own_file
from openmanus_graph.runtime.events import ObservedRun, observing_runs
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.context import Context
from openmanus_graph.state.settings import Settings

Event = dict[str, Any]


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
    known = thread_id(thread)
    if bundle is not None:
        return _export_bundle(known, bundle)
    shown = known_thread(known)
    values, runs, _ = asyncio.run(read_thread(shown))
    text = printable("\n".join(transcript(shown, values, runs, cut=False)) + "\n")
    if output == "-":
        sys.stdout.write(text)
    else:
        write_own_file(output, text)
    return 0


def _export_bundle(thread: str, file: str) -> int:
    record = asyncio.run(replaying.record_of(whole_thread(thread)))
    try:
        save_bundle(record, Path(file))
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}.") from error
    sys.stderr.write(f"{printable(file)} holds thread {thread}. Replay it: openmanus replay FILE\n")
    return 0


def _export_page(source: str, file: str) -> int:
    if is_bundle(Path(source)):
        record = load_bundle(Path(source))
        title, config = record.task, None
        events, _ = asyncio.run(_replayed_events(record, record))
    else:
        known = whole_thread(thread_id(source))
        title, config = known.title, known.options.get("config")
        events = _events_of(known)
    secrets = known_secrets(config)
    numbered = (
        json.dumps({"run": "", "ns": "", "ts": "", **event, "seq": number}, default=str)
        for number, event in enumerate(events, 1)
    )
    line = title.strip().partition("\n")[0][:200]
    page = player_page(secrets.remove_from(line), map(secrets.remove_from, numbered))
    write_own_file(file, page)
    sys.stderr.write(f"{printable(file)} plays {printable(source)}. Open it in a browser.\n")
    return 0


def _events_of(known: Thread) -> list[Event]:
    """Return a thread's events: as the server kept them, else from its record or its messages."""
    with hold_thread(openmanus_home(), known.id):
        if kept := _journal(known.id):
            return kept
    with contextlib.suppress(ConfigError):
        record = asyncio.run(replaying.record_of(known))
        events, found = asyncio.run(_replayed_events(record, known))
        if not found.ended:
            return events
    return asyncio.run(_from_messages(known))


def _journal(thread: str) -> list[Event]:
    table = JournalTable(open_database(database_url()))
    found: list[Event] = []
    after = 0
    while rows := table.read(thread, after):
        found += [json.loads(text) for _, text in rows]
        after = rows[-1][0]
    return found


async def _from_messages(known: Thread) -> list[Event]:
    async with open_checkpointer(database_url()) as saver:
        graph = build_agent(known.agent, checkpointer=saver)
        state = await graph.aget_state({"configurable": {"thread_id": known.id}})
    events = [*events_from_messages(known, state.values.get("messages", []))]
    if known.status not in ("running", "interrupted"):
        events.append(final_event(state, cancelled=known.status == "cancelled"))
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
    seen.events += events_from_messages(record, state.values.get("messages", []))
    context = to_context(RunOptions().over(dict(record.options)))
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
        if event["type"] == "token":
            return  # the whole text follows
        untimed = {"seconds": None} if "seconds" in event else {}
        self.events.append({**event, **untimed, "run": run, "ns": plan_step})

    async def on_end(self, run: ObservedRun, error: BaseException | None) -> None:
        if error is not None:
            return
        config = {"configurable": {"thread_id": run.thread}}
        state = await self._graph.aget_state(config)
        usage = await read_usage(self._graph, config, state)
        self.events.append({**final_event(state, usage, cancelled=False), "run": run.id})
