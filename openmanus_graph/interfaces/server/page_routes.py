"""Routes of the page about threads, settings and notes.

They list threads and their earlier steps, start the demo and edit the memory.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any, Literal, get_args, get_origin

from fastapi import APIRouter, Query, Response
from langgraph.checkpoint.serde.types import TASKS
from langgraph.constants import START
from langgraph.types import Send
from langgraph_sdk.errors import APIStatusError, NotFoundError
from pydantic import BaseModel, ConfigDict, Field

from openmanus_graph import demo as recorded
from openmanus_graph.backends.models.spec import RECORDED
from openmanus_graph.backends.persistence.threads import Thread, Threads
from openmanus_graph.backends.snapshots.objects import MissingObjectError, SnapshotStore
from openmanus_graph.backends.snapshots.thread_snapshots import change_as_json, changes_between
from openmanus_graph.config.files import DeclaredField, bare_type, declared_fields
from openmanus_graph.config.instructions import find_skills
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ConfigError, StorageError, TrustedToolError
from openmanus_graph.graphs import catalog
from openmanus_graph.graphs.catalog import DEFAULT_AGENT, agent_names, describe_agent
from openmanus_graph.interfaces.server import store
from openmanus_graph.interfaces.server.admission import admit_deletion, may_set, settings_of
from openmanus_graph.interfaces.server.files import MAX_UPLOAD_BYTES
from openmanus_graph.interfaces.server.runs import RunRequest, start_or_resume
from openmanus_graph.interfaces.server.setup import wanted_inputs
from openmanus_graph.interfaces.server.sharing import played
from openmanus_graph.interfaces.server.takeover import end_takeovers
from openmanus_graph.interfaces.service import accounts
from openmanus_graph.interfaces.service import threads as stored
from openmanus_graph.interfaces.service.accounts import Refused
from openmanus_graph.interfaces.service.run_view import model_label
from openmanus_graph.interfaces.service.thread_view import read_conversations, transcript
from openmanus_graph.runtime.checkpoint_lineage import known_snapshot
from openmanus_graph.runtime.output import printable
from openmanus_graph.runtime.session_registry import newest_output
from openmanus_graph.runtime.workspace import put_file
from openmanus_graph.state.context import Context
from openmanus_graph.state.settings import Settings

TITLE_CHARS = 200
LARGEST_PAGE = 500
LARGEST_BULK = 500
LIVE_RESOURCES = ("bash", "python")
MAX_CHANGES = 200
"""Files of one answer."""
_BRANCH_CHANNEL = "branch:to:"
"""LangGraph's prefix of the channels that trigger nodes."""
_NEW_THREAD: dict[str, Any] = {"options": {}, "interrupts": [], "held_by": None}
LATENCY_S = 0.8
"""Seconds that the recorded model takes for a reply, so that the user can watch."""
RECENT_THREADS = 200
"""How many threads' models are offered."""
router = APIRouter(prefix="/app/api")


@router.get("/me")
async def show_user() -> dict[str, str]:
    user = accounts.current_user()
    return {"name": user.name, "role": user.role}


@router.post("/threads", status_code=201)
async def create_thread() -> dict[str, str]:
    return {"id": await store.new_thread()}


@router.get("/threads")
async def list_threads(
    limit: int = Query(50, ge=1, le=LARGEST_PAGE),
    before: int | None = Query(None, ge=0),
    q: str = Query("", max_length=200),
    archived: bool = False,
    batch: bool = False,
) -> dict[str, Any]:
    """List threads, pinned and newest first, a page at a time; those that `q` finds, if given.

    Threads of `openmanus batch` and `eval` are listed by themselves.
    """
    table = store.current().threads
    owner = accounts.current_user().name
    select = partial(table.page, limit + 1, before, q, owner=owner, archived=archived, batch=batch)
    page = await asyncio.to_thread(select)
    shown = page[:limit]
    lines = await asyncio.to_thread(table.lines, [thread.id for _, thread in shown], q)
    threads = [
        {
            **thread_json(await store.current().with_live_status(thread)),
            "found": lines.get(thread.id, ""),
            "place": str(place),
        }
        for place, thread in shown
    ]
    return {"threads": threads, "next": str(shown[-1][0]) if page[limit:] else None}


@router.get("/threads/{thread}")
async def show_thread(thread: str) -> dict[str, Any]:
    known = await store.current().find(thread)
    if known is None:
        await store.require_thread(thread)
        return {**thread_json(Thread(thread, "", "", {}, "new", "", "")), **_NEW_THREAD}
    # A worker releases the thread a moment after it has written its run's end.
    elsewhere = known.status == "running" and await store.current().is_held_elsewhere(thread)
    return {
        **thread_json(known),
        "options": store.context_of(known.options),
        "interrupts": await store.open_questions(thread, known.agent),
        "held_by": "another process" if elsewhere else None,
    }


class ThreadChange(BaseModel):
    """A new title, and whether the thread is pinned and archived; what is left out stays."""

    model_config = ConfigDict(extra="forbid")

    title: str | None = Field(default=None, min_length=1, max_length=TITLE_CHARS)
    pinned: bool | None = None
    archived: bool | None = None


@router.patch("/threads/{thread}", status_code=204)
async def change_thread(thread: str, change: ThreadChange) -> Response:
    await store.require_thread(thread)
    table, title = store.current().threads, " ".join((change.title or "").split())
    if title:
        await asyncio.to_thread(table.rename, thread, title)
    elif change.title is not None:
        raise Refused(422, "The title is empty.")
    if change.pinned is not None:
        await asyncio.to_thread(partial(table.mark, thread, "pinned", on=change.pinned))
    if change.archived is not None:
        await asyncio.to_thread(partial(table.mark, thread, "archived", on=change.archived))
    return Response(status_code=204)


class BulkChange(BaseModel):
    model_config = ConfigDict(extra="forbid")

    ids: list[str] = Field(max_length=LARGEST_BULK)
    action: Literal["archive", "unarchive", "delete"]


@router.post("/threads/bulk")
async def change_threads(change: BulkChange) -> dict[str, Any]:
    """Archive or delete threads, each by itself. Returns which were changed, and why not others."""
    done: list[str] = []
    refused: dict[str, str] = {}
    for thread in dict.fromkeys(change.ids):
        try:
            if change.action == "delete":
                await delete_thread(thread)
            else:
                archived = change.action == "archive"
                await change_thread(thread, ThreadChange(archived=archived))
            done.append(thread)
        except (Refused, StorageError, APIStatusError) as error:
            refused[thread] = str(error)
    return {"done": done, "refused": refused}


@router.get("/threads/{thread}/export")
async def export_thread(thread: str, form: Literal["markdown", "html"] = "markdown") -> Response:
    """Return a thread as Markdown, or as a page that plays it with the files that it made."""
    known = await store.current().find(thread)
    if known is not None and form == "html":
        page = await played(known, await store.current().workspace(thread))
        headers = {"Content-Disposition": "attachment"}  # never a page of this server
        return Response(page, media_type="text/html", headers=headers)
    graph = None if known is None else await store.graph_of(known.agent)
    if known is None or graph is None:
        raise Refused(404, f"There is nothing of a thread {thread} to export.")
    state = await graph.aget_state({"configurable": {"thread_id": thread}})
    values, runs = await read_conversations(graph, store.saver(), thread, state.values)
    text = printable("\n".join(transcript(known, values, runs, cut=False)) + "\n")
    return Response(text, media_type="text/markdown")


@router.get("/threads/{thread}/output")
async def show_output(thread: str) -> dict[str, str]:
    """Return the newest line of output of each resource that runs something now."""
    await store.require_thread(thread)
    lines = {name: newest_output(thread, name) for name in LIVE_RESOURCES}
    return {name: line for name, line in lines.items() if line}


@router.delete("/threads/{thread}", status_code=204)
async def delete_thread(thread: str) -> Response:
    await store.require_thread(thread)
    await admit_deletion(thread)
    await end_takeovers(thread)
    is_gone = False
    if store.is_startable(thread):
        with contextlib.suppress(NotFoundError):  # it never ran on this server
            await store.own_server.connect().threads.delete(thread)
            is_gone = store.own_server.is_alone  # it deletes by our saver, others by their own
    if not is_gone:
        await store.saver().adelete_thread(thread)
    return Response(status_code=204)


@router.get("/threads/{thread}/checkpoints")
async def list_checkpoints(thread: str) -> dict[str, Any]:
    """List the checkpoints that a run can start from, newest first."""
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    await store.require_thread(thread)
    places: list[dict[str, Any]] = []
    parent: str | None = None
    async for found in store.saver().alist(config):  # newest first
        if parent not in (None, found.checkpoint["id"]):
            continue  # a fork from an earlier checkpoint has left this branch
        parent_config: Any = found.parent_config or {}
        parent = str(parent_config.get("configurable", {}).get("checkpoint_id", ""))
        values, metadata = found.checkpoint["channel_values"], found.metadata
        branches = [name for name in values if name.startswith(_BRANCH_CHANNEL)]
        sends: list[Send] = values.get(TASKS) or []
        next_nodes = [name.removeprefix(_BRANCH_CHANNEL) for name in branches]
        next_nodes += sorted({send.node for send in sends})
        if metadata.get("source") == "input":
            next_nodes = [START]
        places.append(
            {
                "checkpoint_id": found.checkpoint["id"],
                "step": metadata.get("step", 0),
                "at": found.checkpoint["ts"],
                "next": next_nodes,
                "label": _label(next_nodes, sends, metadata),
                "snapshot": known_snapshot(found),
                "current": not places,
            }
        )
    return {"checkpoints": [place for place in places if place["next"]]}


@router.get("/threads/{thread}/changes")
async def list_changes(thread: str, before: str, after: str) -> dict[str, Any]:
    """List what differs between two snapshots of a thread, each file as a unified diff."""
    await store.require_thread(thread)

    def compare() -> dict[str, Any]:
        snapshots = SnapshotStore(store.current().home)
        if None in (snapshots.root_of(thread, before), snapshots.root_of(thread, after)):
            raise Refused(404, "This server does not have this snapshot of the thread.")
        changes = changes_between(snapshots, before, after)
        shown = [change_as_json(snapshots, change) for change in changes[:MAX_CHANGES]]
        return {"changes": shown, "truncated": len(changes) > MAX_CHANGES}

    try:
        return await asyncio.to_thread(compare)
    except MissingObjectError as error:
        raise Refused(404, "A snapshot of this thread is missing or damaged.") from error


def thread_json(thread: Thread) -> dict[str, Any]:
    # SQLite's times are UTC.
    created, updated = (
        f"{time.replace(' ', 'T')}Z" if time else "" for time in (thread.created, thread.updated)
    )
    return {
        "id": thread.id,
        "agent": thread.agent,
        "title": thread.title.strip().partition("\n")[0][:TITLE_CHARS],
        "status": thread.status,
        "created": created,
        "updated": updated,
        "startable": store.is_startable(thread.id),
        "pinned": thread.pinned,
        "archived": thread.archived,
    }


def _label(next_nodes: list[str], sends: list[Send], metadata: Mapping[str, Any]) -> str:
    calls = [call["name"] for send in sends if "calls" in send.arg for call in send.arg["calls"]]
    if calls:
        return f"before {', '.join(calls)}"
    if metadata.get("source") == "input":
        return "before the message was read"
    return f"before {', '.join(next_nodes)}" if next_nodes else "the end"


@router.post("/demo", status_code=202)
async def start_demo() -> dict[str, str]:
    """Start the demo on its own thread: only the model's replies are recorded."""
    await asyncio.to_thread(recorded.require_packages)
    thread = await store.new_thread()
    workspace = await store.current().workspace(thread)

    def bring_data() -> None:
        workspace.prepare()
        with recorded.demo_folder() as folder:
            data = (folder / recorded.DATA).read_bytes()
        put_file(workspace, workspace.root / recorded.DATA, data)

    await asyncio.to_thread(bring_data)
    context = {"model": f"demo:{recorded.MODEL}", "model_options": {"latency_s": LATENCY_S}}
    await start_or_resume(thread, RunRequest(message=recorded.TASK, context=context))
    return {"id": thread}


FORM = tuple(one for one in declared_fields() if one.setting.label)


def _form_field(one: DeclaredField) -> dict[str, Any]:
    """Return a field of the form: a choice, a switch or a number, which may be an integer."""
    kind = bare_type(one.written)
    types = {kind, *get_args(kind)}
    shape: dict[str, Any]
    if get_origin(kind) is Literal:
        shape = {"kind": "choice", "values": list(get_args(kind))}
    elif bool in types:
        shape = {"kind": "switch"}
    else:
        shape = {"kind": "number", "integer": float not in types}
    return {"name": one.context, "label": one.setting.label, **shape}


@router.get("/options")
async def show_options() -> dict[str, Any]:
    return await asyncio.to_thread(_options, store.current().threads)


def _options(threads: Threads) -> dict[str, Any]:
    settings, problem, needs_model = _settings()
    model = model_label(settings) if settings and not needs_model else None
    recent = threads.newest(RECENT_THREADS, accounts.current_user().name)
    used = [thread.options.get("model") for thread in recent]
    named = dict.fromkeys(name for name in (model, *used) if isinstance(name, str) and name)
    defaults: dict[str, Any] = {}
    for one in FORM:
        record = getattr(settings, one.table) if settings and one.table else settings
        defaults[str(one.context)] = getattr(record, one.name, None)
    return {
        "agents": [{"name": name, "description": describe_agent(name)} for name in agent_names()],
        "default_agent": DEFAULT_AGENT,
        "model": model,
        "problem": problem,
        "needs_model": needs_model,
        "models": [name for name in named if not name.startswith(f"{RECORDED.name}:")],
        "form": [_form_field(one) for one in FORM if may_set(str(one.context))],
        "defaults": defaults,
        "max_upload_bytes": MAX_UPLOAD_BYTES,
        "version": version("openmanus-graph"),
        "warnings": list(settings.warnings) if settings else [],
        "inputs": wanted_inputs() if may_set("mcp_servers") else [],
    }


@router.get("/extensions")
async def list_extensions(agent: str = DEFAULT_AGENT) -> dict[str, Any]:
    """Return an agent's tools, and the skills and MCP servers of this server."""
    return await asyncio.to_thread(_extensions, agent)


def _extensions(agent: str) -> dict[str, Any]:
    settings = _settings()[0]
    known_tools = catalog.agent_tools(agent)
    tools = {one.name: one.description.strip().partition("\n")[0] for one in known_tools}
    owns = may_set("mcp_servers")  # only the owner is told why a skill is not used
    found = (one.as_json() for one in find_skills() if owns or not one.problems)
    skills = [{**one, "folder": None} for one in found]
    known = settings.mcp_servers if settings else ()
    servers = [{"name": one.name, "on": one.enabled, "local": bool(one.command)} for one in known]
    return {"tools": tools, "skills": skills, "servers": servers}


def _settings() -> tuple[Settings | None, str | None, bool]:
    """Return the settings of a new run, what is wrong, and whether only a model is missing."""
    try:
        without_model = resolve_settings(Context(), "new", without_model=True)
    except ConfigError as error:
        return None, str(error), False
    try:
        return settings_of(Context(), "new"), None, False
    except ConfigError as error:
        return without_model, str(error), True


class NoteForm(BaseModel):
    """A note of the user; `before` is the text that the user saw, null for a new note."""

    model_config = ConfigDict(extra="forbid")

    path: str
    text: str
    before: str | None = None
    trusted: bool = False


@router.get("/memory")
async def list_notes() -> dict[str, Any]:
    notes = await asyncio.to_thread(lambda: stored.own_notes().notes())
    return {"notes": [stored.note_row(note) for note in notes]}


@router.get("/memory/note")
async def show_note(path: str) -> dict[str, Any]:
    try:
        note = await asyncio.to_thread(lambda: stored.own_notes().find(path))
    except TrustedToolError as error:
        raise Refused(422, str(error)) from error
    if note is None:
        raise Refused(404, f"There is no note {path}.")
    return {**stored.note_row(note), "text": note.text}


@router.put("/memory/note", status_code=204)
async def write_note(form: NoteForm) -> Response:
    path, text, before, trusted = form.path, form.text, form.before, form.trusted
    return await _done(
        lambda: stored.save_note(stored.own_notes(), path, text, before, trusted=trusted)
    )


@router.delete("/memory/note", status_code=204)
async def delete_note(path: str) -> Response:
    return await _done(lambda: stored.own_notes().delete(path))


async def _done(change: Callable[[], None]) -> Response:
    try:
        await asyncio.to_thread(change)
    except TrustedToolError as error:
        raise Refused(409, str(error)) from error
    return Response(status_code=204)
