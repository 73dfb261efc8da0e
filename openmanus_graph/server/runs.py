"""Routes that start, answer, continue, redo and stop runs, which are LangGraph's own."""

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from typing import Any

import httpx
from fastapi import APIRouter
from langchain_core.messages import BaseMessage
from langgraph_sdk import get_client
from pydantic import BaseModel, ConfigDict

from openmanus_graph.agents import DEFAULT_AGENT, agent_names, restart_node
from openmanus_graph.inbox import tell
from openmanus_graph.persistence.threads import Thread
from openmanus_graph.server.admission import Refused, admit
from openmanus_graph.server.store import Store, graph_of, state_of, store
from openmanus_graph.server.threads import is_startable, require_thread

router = APIRouter(prefix="/app/api/threads/{thread}")
END_S = 5.0
"""How long runs may take to end when the server does."""


class Wish(BaseModel):
    """What the person wants of a thread; one of `message`, `answers`, `resume`, `checkpoint_id`."""

    model_config = ConfigDict(extra="forbid")

    agent: str | None = None
    message: str | None = None
    images: list[str] = []
    answers: dict[str, Any] | None = None
    resume: bool = False
    checkpoint_id: str | None = None
    context: dict[str, Any] = {}


@router.post("/runs", status_code=202)
async def start_run(thread: str, wish: Wish) -> dict[str, str]:
    """Start a run, or let one go on."""
    await require_thread(thread)
    if not is_startable(thread):
        raise Refused(409, f"This thread belongs to the terminal: openmanus resume {thread}")
    known = await store().find(thread)
    agent = wish.agent or (known.agent if known else "") or DEFAULT_AGENT
    if agent not in agent_names():
        raise Refused(422, f"There is no agent {agent!r}. There are: {', '.join(agent_names())}.")
    run: dict[str, Any] = {**await _payload(thread, known, wish), "context": wish.context}
    await admit(thread, run)
    client = get_client()
    try:
        await client.threads.create(thread_id=thread, if_exists="do_nothing")
        begun = await client.runs.create(
            thread,
            agent,
            **run,
            checkpoint_id=wish.checkpoint_id,
            stream_mode=["custom"],
            multitask_strategy="reject",
        )
    except httpx.HTTPStatusError as error:
        raise _told(error) from error
    return {"run_id": begun["run_id"]}


@router.post("/stop", status_code=202)
async def stop_runs(thread: str) -> dict[str, int]:
    """Cut off what runs on a thread."""
    await require_thread(thread)
    return {"stopped": await _stop(thread) if is_startable(thread) else 0}


class Remark(BaseModel):
    """What the person tells an agent at work."""

    text: str


@router.post("/steer", status_code=202)
async def tell_agent(thread: str, remark: Remark) -> dict[str, str]:
    """Tell the running agent something that it reads at its next step."""
    await require_thread(thread)
    journal = store().journal
    if not (journal.is_running(thread) or await store().is_held_elsewhere(thread)):
        raise Refused(409, "No run works on this thread. Send it as a message.")
    told = await tell(thread, remark.text)
    journal.add(thread, "", "", {"type": "steer", "text": remark.text, "id": told})
    return {"id": told}


async def _stop(thread: str) -> int:
    """Cancel what is running or waiting its turn; say how many runs that were."""
    client, stopped = get_client(), 0
    for status in ("pending", "running"):
        with contextlib.suppress(httpx.HTTPStatusError):  # it has just ended by itself
            for run in await client.runs.list(thread, status=status):
                await client.runs.cancel(thread, run["run_id"])
                stopped += 1
    return stopped


async def stop_all_runs(store: Store) -> None:
    """Cut off all runs of this server and wait until they are written down."""
    for thread in store.journal.running:
        await _stop(thread)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            await store.journal.until_idle()


async def _payload(thread: str, known: Thread | None, wish: Wish) -> dict[str, Any]:
    """Return the input or command that a wish means. Refused if it means nothing."""
    if wish.answers is not None:
        if known is None or not wish.answers:
            raise Refused(409, "This thread asks nothing.")
        return {"command": {"resume": wish.answers}}
    if wish.message is not None:
        if not wish.message.strip():
            raise Refused(422, "The message is empty.")
        return _said(wish.message, wish.images)
    if wish.checkpoint_id is not None:
        return {"input": None}
    if not wish.resume:
        raise Refused(422, "Give one of message, answers, resume and checkpoint_id.")
    if known is None:
        raise Refused(409, "Nothing has run on this thread yet.")
    return await _goes_on(thread, known)


async def _goes_on(thread: str, known: Thread) -> dict[str, Any]:
    """Decide how a thread goes on: from where it was cut off, or with a new limit."""
    state = await state_of(thread, known.agent)
    held: list[BaseMessage] = [] if state is None else state.values.get("messages", [])
    if not held or known.status == "interrupted":
        message = await asyncio.to_thread(store().threads.newest_message, thread)
        if message is not None and message.id not in {one.id for one in held}:
            return {"input": {"messages": [message.model_dump(mode="json")]}}
    if state is not None and state.interrupts:
        raise Refused(409, "This thread waits for an answer.")
    if state is None or state.tasks:
        return {"input": None}
    if state.values.get("status") == "finished" or state.values.get("stop_reason") == "terminate":
        raise Refused(409, "This thread is finished. Ask for more with a message.")
    restart = restart_node(await graph_of(known.agent))
    return {"command": {"goto": restart}} if restart else {"input": None}


def _said(text: str, images: list[str]) -> dict[str, Any]:
    extra: Mapping[str, Any] = {"additional_kwargs": {"images": images}} if images else {}
    message = {"type": "human", "id": str(uuid.uuid4()), "content": text, **extra}
    return {"input": {"messages": [message]}}


def _told(error: httpx.HTTPStatusError) -> Refused:
    """Turn LangGraph's refusal into ours."""
    status = error.response.status_code
    if status == 409:
        return Refused(409, "A run works on this thread already, maybe begun in another tab.")
    return Refused(status, f"The server refused the run: {error}")
