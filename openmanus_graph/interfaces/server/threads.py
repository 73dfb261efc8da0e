"""Routes about threads: the list, one thread, its earlier steps."""

import asyncio
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Query, Response
from langgraph.checkpoint.serde.types import TASKS
from langgraph.types import Send
from pydantic import BaseModel, Field

from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.backends.snapshots.objects import MissingObjectError, SnapshotStore
from openmanus_graph.backends.snapshots.thread_snapshots import change_as_json, changes_between
from openmanus_graph.interfaces.server import store
from openmanus_graph.interfaces.server.admission import admit_deletion
from openmanus_graph.interfaces.server.store import Refused
from openmanus_graph.interfaces.server.takeover import end_takeovers
from openmanus_graph.interfaces.service.threads import forget_thread
from openmanus_graph.interfaces.service.transcript import runs_of_steps, transcript
from openmanus_graph.runtime.checkpoint_lineage import known_snapshot
from openmanus_graph.runtime.output import printable
from openmanus_graph.runtime.session_registry import newest_output

TITLE_CHARS = 200
LARGEST_PAGE = 500
SHORTEST_WORDS = 2
"""Characters of a search that also covers the threads' contents."""
LIVE_RESOURCES = ("bash", "python")
MAX_CHANGES = 200
"""Files of one answer."""
_BRANCH_CHANNEL = "branch:to:"
"""LangGraph's prefix of the channels that trigger nodes."""
_NEW_THREAD: dict[str, Any] = {"options": {}, "interrupts": [], "held_by": None}
router = APIRouter(prefix="/app/api/threads")


@router.post("", status_code=201)
async def create_thread() -> dict[str, str]:
    return {"id": await store.new_thread()}


@router.get("")
async def list_threads(
    limit: int = Query(50, ge=1, le=LARGEST_PAGE),
    before: int | None = Query(None, ge=0),
    q: str = Query("", max_length=200),
) -> dict[str, Any]:
    """List threads, newest first, a page at a time; only those that contain `q`, if given."""
    words = q.strip()
    said = await store.current().journal.search(words) if len(words) >= SHORTEST_WORDS else {}
    page = await asyncio.to_thread(store.current().threads.page, limit + 1, before, words, said)
    shown, rest = page[:limit], page[limit:]
    threads = [
        {
            **thread_json(await store.current().with_live_status(thread)),
            "found": said.get(thread.id, ""),
        }
        for _, thread in shown
    ]
    return {"threads": threads, "next": str(shown[-1][0]) if rest else None}


@router.get("/{thread}")
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


class Naming(BaseModel):
    title: str = Field(min_length=1, max_length=TITLE_CHARS)


@router.patch("/{thread}", status_code=204)
async def rename_thread(thread: str, naming: Naming) -> Response:
    await store.require_thread(thread)
    title = " ".join(naming.title.split())
    if not title:
        raise Refused(422, "The title is empty.")
    await asyncio.to_thread(store.current().threads.rename, thread, title)
    return Response(status_code=204)


@router.get("/{thread}/export")
async def export_thread(thread: str) -> Response:
    known = await store.current().find(thread)
    graph = None if known is None else await store.graph_of(known.agent)
    if known is None or graph is None:
        raise Refused(404, f"There is nothing of a thread {thread} to export.")
    state = await graph.aget_state({"configurable": {"thread_id": thread}})
    runs = await runs_of_steps(graph, store.saver(), thread, state.values)
    text = printable("\n".join(transcript(known, state.values, runs, cut=False)) + "\n")
    return Response(text, media_type="text/markdown")


@router.get("/{thread}/output")
async def show_output(thread: str) -> dict[str, str]:
    """Return the newest line of output of each resource that runs something now."""
    await store.require_thread(thread)
    lines = {name: newest_output(thread, name) for name in LIVE_RESOURCES}
    return {name: line for name, line in lines.items() if line}


@router.delete("/{thread}", status_code=204)
async def delete_thread(thread: str) -> Response:
    await store.require_thread(thread)
    await admit_deletion(thread)
    await end_takeovers(thread)
    await store.saver().adelete_thread(thread)
    if store.is_startable(thread):
        client = store.own_server.connect()
        await client.threads.create(thread_id=thread, if_exists="do_nothing")
        await client.threads.delete(thread)
    await asyncio.to_thread(forget_thread, thread)
    return Response(status_code=204)


@router.get("/{thread}/checkpoints")
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


@router.get("/{thread}/changes")
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
    }


def _label(next_nodes: list[str], sends: list[Send], metadata: Mapping[str, Any]) -> str:
    calls = [call["name"] for send in sends if "calls" in send.arg for call in send.arg["calls"]]
    if calls:
        return f"before {', '.join(calls)}"
    if metadata.get("source") == "input":
        return "before the message was read"
    return f"before {', '.join(next_nodes)}" if next_nodes else "the end"
