"""Runs of LangGraph's server: start, answer, resume, redo, stop them, and follow their events."""

import asyncio
import contextlib
import json
import shlex
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Literal

import httpx
from fastapi import APIRouter, Request
from langchain_core.messages import BaseMessage
from pydantic import BaseModel, ConfigDict

from openmanus_graph.backends.persistence.steering import tell
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.conversation.history import ORIGIN_KEY
from openmanus_graph.conversation.loose_json import made_plain, without_surrogates
from openmanus_graph.graphs.catalog import DEFAULT_AGENT, agent_names, restart_node
from openmanus_graph.interfaces.server import hooks, store
from openmanus_graph.interfaces.server.admission import admit, require_allowed
from openmanus_graph.interfaces.server.files import file_url
from openmanus_graph.interfaces.service import runs
from openmanus_graph.interfaces.service.accounts import Refused
from openmanus_graph.interfaces.service.run_setup import name_files
from openmanus_graph.interfaces.service.run_view import (
    NO_RESULT,
    cancelled_event,
    final_without_state,
)
from openmanus_graph.runtime.session_registry import TRIGGER_KEY
from openmanus_graph.safety.provenance import origin_of_parts
from openmanus_graph.state.manus import Origin

router = APIRouter(prefix="/app/api/threads/{thread}")
END_S = 5.0
"""Seconds that runs get to end when the server stops."""
RECORDED_S = 5.0
"""How long the answer to a request for a run waits until the run is recorded."""
PING_S = 5.0
PING = ": ping\n\n"
_stopping = set[asyncio.Task[int]]()


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
    """Which part of the message the user typed, if not all of it."""
    answers: dict[str, Any] | None = None
    resume: bool = False
    checkpoint_id: str | None = None
    context: dict[str, Any] = {}


@router.post("/runs", status_code=202)
async def start_run(thread: str, request: RunRequest) -> dict[str, str]:
    require_allowed(request.context)
    return {"run_id": await start_or_resume(thread, request)}


async def start_or_resume(
    thread: str,
    request: RunRequest,
    history: Sequence[Mapping[str, Any]] = (),
    trigger: str = "page",
) -> str:
    """Start a run, or resume one, and return the run's id.

    `history` are earlier messages of a conversation that this thread has not seen.
    """
    await store.require_thread(thread)
    if not store.is_startable(thread):
        name = shlex.quote(thread)
        raise Refused(409, f"This thread belongs to the terminal: openmanus resume {name}")
    known = await store.current().find(thread)
    agent = request.agent or (known.agent if known else "") or DEFAULT_AGENT
    if agent not in agent_names():
        raise Refused(422, f"There is no agent {agent!r}. Available: {', '.join(agent_names())}.")
    # An answer to a step of a plan waits until the parallel steps have ended.
    queued = request.answers is not None and store.current().journal.is_running(thread)
    run: dict[str, Any] = {**await _payload(thread, known, request), "context": request.context}
    if history:
        run["input"]["messages"][:0] = history
    run = made_plain(run)  # half characters of texts that a client cut, numbers beyond 64 bits
    await admit(thread, run)
    client = store.own_server.connect()
    try:
        await store.ensure_thread(thread)
        with store.current().journal.subscription(thread) as recorded:
            created = await client.runs.create(
                thread,
                agent,
                **run,
                checkpoint_id=request.checkpoint_id,
                stream_mode=["custom"],
                metadata={TRIGGER_KEY: trigger},
                multitask_strategy="enqueue" if queued else "reject",
            )
            if store.own_server.is_alone and not queued:  # a crash loses what is not recorded
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(recorded.wait(), RECORDED_S)
    except httpx.HTTPStatusError as error:
        status, sentence = error.response.status_code, f"The server refused the run: {error}"
        if status == 409:
            sentence = "A run works on this thread already, maybe started in another tab."
        raise Refused(status, sentence) from error
    return str(created["run_id"])


@router.post("/stop", status_code=202)
async def stop_runs(thread: str) -> dict[str, int]:
    await store.require_thread(thread)
    if stopped := hooks.stop_run(thread):
        return {"stopped": stopped}
    return {"stopped": await cancel_runs(thread) if store.is_startable(thread) else 0}


class SteeringMessage(BaseModel):
    text: str
    files: list[str] = []
    """As in `RunRequest`."""


@router.post("/steer", status_code=202)
async def tell_agent(thread: str, steering_text: SteeringMessage) -> dict[str, str]:
    await store.require_thread(thread)
    if not await store.current().is_running(thread):
        raise Refused(409, "No run works on this thread. Send it as a message.")
    text = name_files(steering_text.text, steering_text.files)
    if steering_text.files:  # the user did not type their names
        text = runs.Message(text, words=steering_text.text).as_answer()
    text = without_surrogates(text)
    steering_id = await tell(thread, text)
    event = {"type": "steer", "text": text, "id": steering_id}
    store.current().journal.add(thread, "", "", event)
    return {"id": steering_id}


async def cancel_runs(thread: str) -> int:
    client, stopped = store.own_server.connect(), 0
    for status in ("pending", "running"):
        with contextlib.suppress(httpx.HTTPStatusError):  # it has just ended by itself
            for run in await client.runs.list(thread, status=status):
                await client.runs.cancel(thread, run["run_id"])
                stopped += 1
    return stopped


async def stop_all_runs() -> None:
    journal = store.current().journal
    for thread in journal.running:
        await cancel_runs(thread)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            await journal.wait_until_idle()


async def _payload(thread: str, known: Thread | None, request: RunRequest) -> dict[str, Any]:
    if request.answers is not None:
        if known is None or not request.answers:
            raise Refused(409, "This thread has no open question.")
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
    state = await store.state_of(thread, known.agent)
    saved: list[BaseMessage] = [] if state is None else state.values.get("messages", [])
    if not saved or known.status == "interrupted":
        message = await asyncio.to_thread(store.current().threads.newest_message, thread)
        if message is not None and message.id not in {one.id for one in saved}:
            return {"input": {"messages": [message.model_dump(mode="json")]}}
    if state is not None and state.interrupts:
        raise Refused(409, "This thread waits for an answer.")
    if state is None or state.tasks:
        return {"input": None}
    if state.values.get("status") == "finished" or state.values.get("stop_reason") == "terminate":
        raise Refused(409, "This thread is finished. Ask for more with a message.")
    restart = restart_node(await store.graph_of(known.agent))
    return {"command": {"goto": restart}} if restart else {"input": None}


@dataclass(frozen=True)
class Turn:
    """A message of a client of OpenAI's or AG-UI's protocol."""

    role: Literal["user", "assistant"]
    text: str
    files: tuple[runs.Upload, ...] = ()
    words: str = ""
    """The part of the text that the user typed: the first."""


@dataclass(frozen=True)
class Prompt:
    """The messages of a request in such a protocol."""

    instructions: str
    """Of system and developer messages."""
    turns: tuple[Turn, ...]
    """Of user and assistant; the newest is the user's."""

    def message(self, *, begins: bool) -> runs.Message:
        """Return the newest turn for a run.

        `begins` says that the thread is new: it gets the instructions and earlier turns' files.
        """
        newest = self.turns[-1]
        text, files = newest.text, newest.files
        if begins:
            files = tuple(file for turn in self.turns for file in turn.files)
        if begins and self.instructions:
            text = f"Instructions for this conversation:\n{self.instructions}\n\n{text}"
        return runs.Message(text, files, newest.words)

    def history(self) -> list[dict[str, str]]:
        types = {"user": "human", "assistant": "ai"}
        earlier = [turn for turn in self.turns[:-1] if turn.text]
        return [{"type": types[turn.role], "content": turn.text} for turn in earlier]


@dataclass(frozen=True)
class AgentRun:
    id: str
    thread: str
    after: int
    """Number of the thread's newest event before the run."""
    base_url: str
    """The server's address as the client knows it."""

    def files(self, final: runs.Final) -> list[dict[str, Any]]:
        """Return the run's files, with addresses that need no token for some hours."""
        base = self.base_url.rstrip("/")
        return [
            {**artifact, "url": f"{base}{file_url(self.thread, artifact['path'])}"}
            for artifact in final["artifacts"]
        ]


async def start_prompt(
    agent: str,
    thread: str,
    prompt: Prompt,
    base_url: str,
    response_format: dict[str, Any] | None = None,
    trigger: str = "openai",
) -> AgentRun:
    """Start a run with a prompt's newest message, or answer the question that the thread asks.

    A new thread also gets the prompt's earlier turns. `response_format` is the JSON schema of the
    answer. Refused if a run works on the thread, or the settings are wrong.
    """
    await store.require_thread(thread)
    known = await store.current().find(thread)
    questions = await store.open_questions(thread, known.agent) if known else []
    message = prompt.message(begins=known is None)
    workspace = await store.current().workspace(thread)
    text, images = await asyncio.to_thread(runs.bring_files, message, workspace)
    origin = message.origin()
    after = await store.current().journal.last(thread)
    context = {"response_format": response_format} if response_format else {}
    if questions:
        answer = text if origin is None else replace(message, text=text).as_answer()
        request = RunRequest(answers={questions[0]["id"]: answer}, context=context)
    else:
        request = RunRequest(
            agent=agent, message=text, images=images, origin=origin, context=context
        )
    history = () if known else prompt.history()
    run = await start_or_resume(thread, request, history, trigger)
    return AgentRun(run, thread, after, base_url)


async def follow_events(run: AgentRun) -> AsyncGenerator[dict[str, Any]]:
    """Yield a run's events up to `final`; an empty one after the past and after quiet seconds."""
    async with aclosing(store.current().journal.follow(run.thread, run.after, PING_S)) as batches:
        async for batch in batches:
            if not batch:
                if end := await _unrecorded_end(run):
                    yield end
                    return
                yield {}
            for _, line in batch or ():
                event: dict[str, Any] = json.loads(line)
                yield event
                if event["type"] == "final":
                    return
    raise Refused(503, "The server is shutting down; the run was cut off.")


async def _unrecorded_end(run: AgentRun) -> runs.Final | None:
    """Return how a run ended without recording it; None if it is running, or recorded its end.

    Such a run was cancelled or refused before it started, or the server died.
    """
    if await store.current().is_running(run.thread):  # also before its first event
        return None
    status = "unknown"  # the server was restarted
    with contextlib.suppress(httpx.HTTPStatusError):
        status = (await store.own_server.connect().runs.get(run.thread, run.id))["status"]
    newest = await store.current().journal.newest_event(run.thread)
    has_end = newest and newest["type"] == "final" and newest["seq"] > run.after
    if status in ("pending", "running") or has_end:
        return None
    if status == "interrupted":
        return cancelled_event("The run was cancelled before it began.")
    return final_without_state(
        "The run was cut off; the server's log may say why. openmanus resume "
        f"{shlex.quote(run.thread)} continues it."
    )


async def follow(run: AgentRun, *, cancel: bool = True) -> AsyncGenerator[str | runs.Final]:
    """Yield the progress of a run as texts, and then how it ended.

    A text is empty after the past and after some quiet seconds. Unless `cancel` is false, a reader
    that stops before the end, or hangs up, cancels the run.
    """
    sink = runs.RemoteSink()
    try:
        async with aclosing(follow_events(run)) as events:
            async for event in events:
                if not event:
                    yield ""
                    continue
                sink.show(event)
                if final := sink.outcome():
                    yield final
                elif text := runs.progress_text(event):
                    yield text
    finally:
        if cancel and sink.final is None:
            cancel_in_background(run)


def cancel_in_background(run: AgentRun) -> None:
    stopping = asyncio.create_task(cancel_runs(run.thread))
    _stopping.add(stopping)
    stopping.add_done_callback(_stopping.discard)


async def result_of(run: AgentRun, request: Request) -> runs.Final:
    """Return how a run ended. If the client hangs up before, the run is cancelled."""

    async def read() -> runs.Final:
        async with aclosing(follow(run)) as parts:
            async for part in parts:
                if not isinstance(part, str):
                    return part
        raise Refused(500, NO_RESULT)

    async def hang_up() -> None:  # the request's body has been read
        while (await request.receive())["type"] != "http.disconnect":
            pass

    reading = asyncio.create_task(read())
    hanging_up = asyncio.create_task(hang_up())
    try:
        await asyncio.wait({reading, hanging_up}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            raise Refused(499, "The client disconnected. The run is cancelled.")
        return reading.result()
    finally:
        reading.cancel()
        hanging_up.cancel()
