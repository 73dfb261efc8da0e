"""Starts runs for OpenAI's clients and follows them to their end."""

import asyncio
import contextlib
import json
import shlex
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from urllib.parse import quote

import httpx
from fastapi import Request

from openmanus_graph.backends.persistence.memory import DatabaseStore
from openmanus_graph.config.resolve import database_url
from openmanus_graph.graphs.catalog import agent_names
from openmanus_graph.interfaces.server.openai_api.prompts import ApiError, Prompt
from openmanus_graph.interfaces.server.runs import RunRequest, cancel_runs, start_or_resume
from openmanus_graph.interfaces.server.store import own_api, store
from openmanus_graph.interfaces.server.threads import open_questions
from openmanus_graph.interfaces.server.token import write_ticket
from openmanus_graph.interfaces.service.final_event import NO_RESULT, failed_event
from openmanus_graph.interfaces.service.runs import (
    ANSWER_HINTS,
    Final,
    RemoteSink,
    bring_files,
    progress_text,
)

PING_S = 5.0
_WORKING = ("pending", "running")
"""What LangGraph's server calls a run that has not ended."""
_stopping = set[asyncio.Task[int]]()


@dataclass(frozen=True)
class AgentRun:
    """A run that was started."""

    id: str
    thread: str
    after: int
    """Number of the thread's newest event before the run."""


@dataclass(frozen=True)
class Progress:
    """What a run does meanwhile; the text is empty after the past and after some quiet seconds."""

    text: str


def require_model(name: str) -> str:
    """Return an agent's name. ApiError: there is none of this name."""
    if name not in agent_names():
        known = ", ".join(agent_names())
        sentence = f"There is no model {name!r}. Agents are models here: {known}."
        raise ApiError(404, sentence, param="model", code="model_not_found")
    return name


async def new_thread() -> str:
    """Make a thread."""
    thread = str(uuid.uuid4())
    await own_api().threads.create(thread_id=thread, if_exists="do_nothing")
    return thread


async def start(
    agent: str, thread: str, prompt: Prompt, response_format: dict[str, Any] | None = None
) -> AgentRun:
    """Start a run with a prompt's newest message, or answer the question that the thread asks.

    Args:
        agent: Its name.
        thread: A new one, which gets the prompt's earlier turns as well, or one that knows them.
        prompt: What the client says.
        response_format: JSON schema of the answer.

    Raises:
        Refused: The thread is at work, or the settings are wrong.
    """
    known = await store().find(thread)
    questions = await open_questions(thread, known.agent) if known else []
    message = prompt.message(begins=known is None)
    workspace = await store().workspace(thread)
    text, images = await asyncio.to_thread(bring_files, message, workspace)
    origin = message.origin()
    after = await store().journal.last(thread)
    context = {"response_format": response_format} if response_format else {}
    if questions:
        answer = text if origin is None else replace(message, text=text).as_answer()
        request = RunRequest(answers={questions[0]["id"]: answer}, context=context)
    else:
        request = RunRequest(
            agent=agent, message=text, images=images, origin=origin, context=context
        )
    history = () if known else prompt.history()
    return AgentRun(await start_or_resume(thread, request, history), thread, after)


async def follow_events(run: AgentRun) -> AsyncGenerator[dict[str, Any]]:
    """Yield a run's events up to `final`; an empty one after the past and after quiet seconds."""
    async with aclosing(store().journal.follow(run.thread, run.after, PING_S)) as batches:
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
    raise ApiError(503, "The server is shutting down; the run was cut off.")


async def follow(run: AgentRun) -> AsyncGenerator[Progress | Final]:
    """Yield what a run does, and at last how it ended."""
    sink = RemoteSink(lambda event: None)
    async with aclosing(follow_events(run)) as events:
        async for event in events:
            if not event:
                yield Progress("")
                continue
            sink.show(event)
            if final := sink.outcome():
                yield final
            elif text := progress_text(event):
                yield Progress(text)


async def follow_or_cancel(run: AgentRun) -> AsyncGenerator[Progress | Final]:
    """Do as `follow`; who stops reading before the end, or hangs up, cancels the run."""
    ended = False
    try:
        async with aclosing(follow(run)) as parts:
            async for part in parts:
                ended = not isinstance(part, Progress)
                yield part
    finally:
        if not ended:
            cancel_in_background(run)


def cancel_in_background(run: AgentRun) -> None:
    """Cancel a run from a task that is being cancelled itself."""
    stopping = asyncio.create_task(cancel_runs(run.thread))
    _stopping.add(stopping)
    stopping.add_done_callback(_stopping.discard)


async def result_of(run: AgentRun, request: Request) -> Final:
    """Wait for the end of a run; a client that hangs up before cancels it."""

    async def read() -> Final:
        async with aclosing(follow_or_cancel(run)) as parts:
            async for part in parts:
                if not isinstance(part, Progress):
                    return part
        raise ApiError(500, NO_RESULT)

    reading = asyncio.create_task(read())
    hanging_up = asyncio.create_task(_hang_up(request))
    try:
        await asyncio.wait({reading, hanging_up}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            raise ApiError(499, "The client hung up; the run is cancelled.")
        return reading.result()
    finally:
        reading.cancel()
        hanging_up.cancel()


def require_answer(final: Final) -> None:
    """Refuse the result of a run without an answer. ApiError says what went wrong."""
    if final["status"] in ("failed", "cancelled"):
        code = "cancelled" if final["status"] == "cancelled" else None
        raise ApiError(500, str(final["answer"]), code=code)


def answer_text(final: Final, thread: str, base_url: str) -> str:
    """Return what the client is told: the answer or question, and links to the run's files."""
    if final["structured"] is not None:
        return json.dumps(final["structured"], ensure_ascii=False)
    parts = [str(final["answer"])]
    if final["status"] == "waiting":
        parts.append(ANSWER_HINTS.get(final["stop_reason"], ""))
    links = [f"- [{one['path']}]({one['url']})" for one in files_of(final, thread, base_url)]
    parts.append("\n".join(links))
    return "\n\n".join(part for part in parts if part)


def files_of(final: Final, thread: str, base_url: str) -> list[dict[str, Any]]:
    """Return the run's files, with addresses that need no token for some hours."""
    return [
        {
            **artifact,
            "url": f"{base_url.rstrip('/')}/app/files/{write_ticket(thread, artifact['path'])}/"
            f"{quote(artifact['path'])}",
        }
        for artifact in final["artifacts"]
    ]


@cache
def _records() -> DatabaseStore:
    return DatabaseStore(database_url())


async def recall(kind: str, key: str) -> Mapping[str, Any] | None:
    """Return a record of this protocol, None if there is none."""
    found = await (await asyncio.to_thread(_records)).aget(("openai", kind), key)
    return None if found is None else found.value


async def remember(kind: str, key: str, record: dict[str, Any] | None) -> None:
    """Write a record of this protocol; None deletes it."""
    records = await asyncio.to_thread(_records)
    if record is None:
        await records.adelete(("openai", kind), key)
    else:
        await records.aput(("openai", kind), key, record)


async def _unrecorded_end(run: AgentRun) -> Final | None:
    """Return how a run ended that recorded no end; None if it works, or did record one.

    It was cancelled or refused before it began, or the server died.
    """
    if store().journal.is_running(run.thread):
        return None
    status = "unknown"  # the server was restarted
    with contextlib.suppress(httpx.HTTPStatusError):
        status = (await own_api().runs.get(run.thread, run.id))["status"]
    newest = await store().journal.newest_event(run.thread)
    if status in _WORKING or (newest and newest["type"] == "final" and newest["seq"] > run.after):
        return None
    if status == "interrupted":
        cancelled = {"status": "cancelled", "stop_reason": "cancelled"}
        return failed_event("The run was cancelled before it began.", {}) | cancelled
    return failed_event(
        "The run was cut off; the server's log may say why. openmanus resume "
        f"{shlex.quote(run.thread)} goes on with it.",
        {},
    )


async def _hang_up(request: Request) -> None:
    """Wait until the client hangs up; the request's body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
