"""Routes that start, answer, resume, redo and stop runs of LangGraph's server."""

import asyncio
import contextlib
import shlex
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
from fastapi import APIRouter
from langchain_core.messages import BaseMessage
from pydantic import BaseModel, ConfigDict

from openmanus_graph.backends.persistence.steering import tell
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.conversation.history import ORIGIN_KEY
from openmanus_graph.conversation.loose_json import made_plain, without_surrogates
from openmanus_graph.graphs.catalog import DEFAULT_AGENT, agent_names, restart_node
from openmanus_graph.interfaces.server.admission import Refused, admit
from openmanus_graph.interfaces.server.store import Store, graph_of, own_api, state_of, store
from openmanus_graph.interfaces.server.threads import is_startable, require_thread
from openmanus_graph.interfaces.service.run_setup import name_files
from openmanus_graph.interfaces.service.runs import Message
from openmanus_graph.safety.provenance import origin_of_parts
from openmanus_graph.state.plan import Origin

router = APIRouter(prefix="/app/api/threads/{thread}")
END_S = 5.0
"""How long runs may take to end when the server stops."""


class RunRequest(BaseModel):
    """A run to start, by one of `message`, `answers`, `resume` and `checkpoint_id`."""

    model_config = ConfigDict(extra="forbid")

    agent: str | None = None
    message: str | None = None
    images: list[str] = []
    """Pictures in the workspace that the model is shown with the message."""
    files: list[str] = []
    """Files in the workspace that came with the message, which names them to the model."""
    origin: Origin | None = None
    """What of the message the user typed, if that is not all of it."""
    answers: dict[str, Any] | None = None
    resume: bool = False
    checkpoint_id: str | None = None
    context: dict[str, Any] = {}


@router.post("/runs", status_code=202)
async def start_run(thread: str, request: RunRequest) -> dict[str, str]:
    """Start a run, or resume one."""
    return {"run_id": await start_or_resume(thread, request)}


async def start_or_resume(
    thread: str, request: RunRequest, history: Sequence[Mapping[str, Any]] = ()
) -> str:
    """Start a run, or resume one, and return the run's id.

    Args:
        thread: Its thread.
        request: What to do.
        history: Messages before the request's, of a conversation that this thread has not seen.
    """
    await require_thread(thread)
    if not is_startable(thread):
        name = shlex.quote(thread)
        raise Refused(409, f"This thread belongs to the terminal: openmanus resume {name}")
    known = await store().find(thread)
    agent = request.agent or (known.agent if known else "") or DEFAULT_AGENT
    if agent not in agent_names():
        raise Refused(422, f"There is no agent {agent!r}. There are: {', '.join(agent_names())}.")
    # An answer to a step of a plan waits until the steps beside it have ended.
    queued = request.answers is not None and store().journal.is_running(thread)
    run: dict[str, Any] = {**await _payload(thread, known, request), "context": request.context}
    if history:
        run["input"]["messages"][:0] = history
    run = made_plain(run)  # half characters of texts that a client cut, numbers beyond 64 bits
    await admit(thread, run)
    client = own_api()
    try:
        await client.threads.create(thread_id=thread, if_exists="do_nothing")
        created = await client.runs.create(
            thread,
            agent,
            **run,
            checkpoint_id=request.checkpoint_id,
            stream_mode=["custom"],
            multitask_strategy="enqueue" if queued else "reject",
        )
    except httpx.HTTPStatusError as error:
        status, sentence = error.response.status_code, f"The server refused the run: {error}"
        if status == 409:
            sentence = "A run works on this thread already, maybe begun in another tab."
        raise Refused(status, sentence) from error
    return str(created["run_id"])


@router.post("/stop", status_code=202)
async def stop_runs(thread: str) -> dict[str, int]:
    """Cancel the runs of a thread."""
    await require_thread(thread)
    return {"stopped": await cancel_runs(thread) if is_startable(thread) else 0}


class SteeringMessage(BaseModel):
    """A message to a running agent."""

    text: str
    files: list[str] = []
    """As in `RunRequest`."""


@router.post("/steer", status_code=202)
async def tell_agent(thread: str, steering_text: SteeringMessage) -> dict[str, str]:
    """Send a steering message, which the running agent reads at its next step."""
    await require_thread(thread)
    journal = store().journal
    if not (journal.is_running(thread) or await store().is_held_elsewhere(thread)):
        raise Refused(409, "No run works on this thread. Send it as a message.")
    text = name_files(steering_text.text, steering_text.files)
    if steering_text.files:  # their names are not the user's words
        text = Message(text, words=steering_text.text).as_answer()
    text = without_surrogates(text)
    steering_id = await tell(thread, text)
    journal.add(thread, "", "", {"type": "steer", "text": text, "id": steering_id})
    return {"id": steering_id}


async def cancel_runs(thread: str) -> int:
    """Cancel the running and the queued runs of a thread, and return how many there were."""
    client, stopped = own_api(), 0
    for status in ("pending", "running"):
        with contextlib.suppress(httpx.HTTPStatusError):  # it has just ended by itself
            for run in await client.runs.list(thread, status=status):
                await client.runs.cancel(thread, run["run_id"])
                stopped += 1
    return stopped


async def stop_all_runs(store: Store) -> None:
    """Cancel all runs of this server and wait until their ends are recorded."""
    for thread in store.journal.running:
        await cancel_runs(thread)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            await store.journal.wait_until_idle()


async def _payload(thread: str, known: Thread | None, request: RunRequest) -> dict[str, Any]:
    """Return the graph input or command of a request. Refused if it is incomplete."""
    if request.answers is not None:
        if known is None or not request.answers:
            raise Refused(409, "This thread asks nothing.")
        return {"command": {"resume": request.answers}}
    if request.message is not None:
        if not request.message.strip():
            raise Refused(422, "The message is empty.")
        text, names = request.message, bool(request.files)
        origin = request.origin or origin_of_parts(text, text, names=names)
        extra = {"images": request.images, ORIGIN_KEY: origin}
        message = {
            "type": "human",
            "id": str(uuid.uuid4()),
            "content": name_files(text, request.files),
            "additional_kwargs": {key: value for key, value in extra.items() if value},
        }
        return {"input": {"messages": [message]}}
    if request.checkpoint_id is not None:
        return {"input": None}
    if not request.resume:
        raise Refused(422, "Give one of message, answers, resume and checkpoint_id.")
    if known is None:
        raise Refused(409, "Nothing has run on this thread yet.")
    return await _resume_payload(thread, known)


async def _resume_payload(thread: str, known: Thread) -> dict[str, Any]:
    """Decide where a thread resumes: where it was interrupted, or after the limit that ended it."""
    state = await state_of(thread, known.agent)
    saved: list[BaseMessage] = [] if state is None else state.values.get("messages", [])
    if not saved or known.status == "interrupted":
        message = await asyncio.to_thread(store().threads.newest_message, thread)
        if message is not None and message.id not in {one.id for one in saved}:
            return {"input": {"messages": [message.model_dump(mode="json")]}}
    if state is not None and state.interrupts:
        raise Refused(409, "This thread waits for an answer.")
    if state is None or state.tasks:
        return {"input": None}
    if state.values.get("status") == "finished" or state.values.get("stop_reason") == "terminate":
        raise Refused(409, "This thread is finished. Ask for more with a message.")
    restart = restart_node(await graph_of(known.agent))
    return {"command": {"goto": restart}} if restart else {"input": None}
