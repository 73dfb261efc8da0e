"""AG-UI's route: a request starts a run or answers its questions, and streams its events."""

import uuid
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

from ag_ui.core import (
    PROTOCOL_VERSION,
    ResumeEntry,
    RunAgentInput,
    RunErrorEvent,
    RunStartedEvent,
)
from ag_ui.encoder import EventEncoder
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from openmanus_graph.graphs.catalog import DEFAULT_AGENT, agent_names
from openmanus_graph.interfaces.server.admission import Refused
from openmanus_graph.interfaces.server.ag_ui.events import EventTranslator
from openmanus_graph.interfaces.server.ag_ui.messages import read_messages
from openmanus_graph.interfaces.server.openai_api.agent_runs import (
    AgentRun,
    cancel_in_background,
    files_of,
    follow_events,
    start,
)
from openmanus_graph.interfaces.server.openai_api.chat import PING, STREAM_HEADERS
from openmanus_graph.interfaces.server.openai_api.errors import ApiError
from openmanus_graph.interfaces.server.own_api import own_api
from openmanus_graph.interfaces.server.runs import RunRequest, start_or_resume
from openmanus_graph.interfaces.server.store import store

router = APIRouter(prefix="/ag-ui")


@router.post("")
async def run_default_agent(wanted: RunAgentInput, request: Request) -> StreamingResponse:
    """Run the agent that runs where none is named."""
    return await run_agent(DEFAULT_AGENT, wanted, request)


@router.post("/{agent}")
async def run_agent(agent: str, wanted: RunAgentInput, request: Request) -> StreamingResponse:
    """Run an agent on the newest message, or with the answers, and stream its events.

    Raises:
        Refused: There is no such agent, or the request holds what it does not take.
    """
    if agent not in agent_names():
        raise Refused(404, f"There is no agent {agent!r}. There are: {', '.join(agent_names())}.")
    if wanted.tools:
        raise Refused(
            422,
            "An agent calls its own tools, never the client's: leave `tools` empty. Tools for the "
            "agent come from MCP servers.",
        )
    thread = thread_of(wanted.thread_id)
    await own_api().threads.create(thread_id=thread, if_exists="do_nothing")
    if wanted.resume:
        after = await store().journal.last(thread)
        answers = RunRequest(answers=answers_of(wanted.resume))
        run = AgentRun(await start_or_resume(thread, answers), thread, after)
    else:
        prompt = read_messages(wanted.messages, wanted.context or ())
        try:
            run = await start(agent, thread, prompt)
        except ApiError as error:
            raise Refused(error.status, str(error)) from error
    return StreamingResponse(
        _events(run, wanted, str(request.base_url)),
        media_type=EventEncoder().get_content_type(),
        headers=STREAM_HEADERS,
    )


def thread_of(name: str) -> str:
    """Return the thread of a conversation: of the same name, where that is a thread's."""
    try:
        return str(uuid.UUID(name))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"ag-ui:{name}"))


def answers_of(resume: Iterable[ResumeEntry]) -> dict[str, Any]:
    """Return the answers of a request, by question; what was abandoned is rejected.

    Raises:
        Refused: One that is said to be resolved has no answer.
    """
    answers = dict[str, Any]()
    for entry in resume:
        payload = entry.payload if entry.status == "resolved" else {"type": "reject"}
        if payload is None:
            raise Refused(422, f"The answer to {entry.interrupt_id} has no payload.")
        if isinstance(payload, dict) and "approved" in payload:  # many clients' form
            payload = {"type": "approve" if payload["approved"] is True else "reject", **payload}
        answers[entry.interrupt_id] = payload
    return answers


async def _events(run: AgentRun, wanted: RunAgentInput, base_url: str) -> AsyncGenerator[str]:
    """Stream a run's events as AG-UI's; who hangs up before the end cancels the run."""
    encode, ended = EventEncoder().encode, False
    translator = EventTranslator(wanted.thread_id, wanted.run_id)
    try:
        yield encode(
            RunStartedEvent(
                thread_id=wanted.thread_id,
                run_id=wanted.run_id,
                protocol_version=PROTOCOL_VERSION,
            )
        )
        async with aclosing(follow_events(run)) as events:
            async for event in events:
                ended = event.get("type") == "final"
                if not event:
                    yield PING
                elif ended:
                    files = files_of(event, run.thread, base_url)
                    for translated in translator.end(event, files):
                        yield encode(translated)
                else:
                    for translated in translator.translate(event):
                        yield encode(translated)
    except ApiError as error:
        yield encode(RunErrorEvent(message=str(error), code=error.code))
    finally:
        if not ended:
            cancel_in_background(run)
