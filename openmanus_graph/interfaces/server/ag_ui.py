"""AG-UI, the protocol of agents in user interfaces: a conversation is a thread.

`ag-ui-langgraph` runs a graph without this server's queue, locks and event log, so we use only the
protocol's types.
"""

import base64
import json
import mimetypes
import uuid
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from ag_ui.core import (
    PROTOCOL_VERSION,
    BaseEvent,
    Context,
    CustomEvent,
    DataSource,
    Interrupt,
    Message,
    ResumeEntry,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StepFinishedEvent,
    StepStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TextPart,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from ag_ui.core.types import ContentPart
from ag_ui.encoder import EventEncoder
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from openmanus_graph.graphs.catalog import DEFAULT_AGENT, agent_names
from openmanus_graph.interfaces.server import store
from openmanus_graph.interfaces.server.runs import (
    PING,
    AgentRun,
    Prompt,
    RunRequest,
    Turn,
    cancel_in_background,
    files_of,
    follow_events,
    start_or_resume,
    start_prompt,
)
from openmanus_graph.interfaces.server.store import Refused
from openmanus_graph.interfaces.service.runs import Final, RemoteSink, Upload

NOT_RUN = "This call was not run: the run ended before."
_REASONS = {"question": "input_required", "approval": "tool_call"}
"""AG-UI's words for kinds of questions; others, such as a call's outcome, are confirmations."""
_SHOWN_OTHERWISE = ("run_start", "tool_start", "interrupt", "answered")
"""Events that other events of AG-UI contain."""


class EventTranslator:
    """Translates the events of one run, in order. Names of thread and run are the client's."""

    def __init__(self, thread: str, run: str) -> None:
        self._thread, self._run = thread, run
        self._sink = RemoteSink()
        self._texts: dict[str, str] = {}
        """Ids of the unfinished messages, by the plan step that writes them."""
        self._unanswered: list[str] = []
        """Ids of the calls without a result."""
        self._steps: list[str] = []
        """Names of the running plan steps and subagents."""
        self._said = ""
        """The agent's newest text."""

    def translate(self, event: Mapping[str, Any]) -> Iterator[BaseEvent]:
        """Yield AG-UI's events for an event, except `final`: see `end`."""
        self._sink.show(event)
        source = str(event.get("plan_step", ""))
        match event["type"]:
            case "think_start":  # the text of an earlier attempt is void
                yield from self._end_text(source)
            case "token":
                yield from self._add_text(source, event["text"], event)
            case "think_end":
                yield from self._reply(source, event)
            case "tool_end":
                yield from self._result(event["call_id"], event["output"], _message_id(event))
            case "step_start" | "step_end":
                yield from self._step("/".join(filter(None, (source, event["id"]))), event)
            case kind if kind not in _SHOWN_OTHERWISE:
                yield CustomEvent(name=kind, value=dict(event))
            case _:
                pass

    def end(self, final: Final, files: list[dict[str, Any]]) -> Iterator[BaseEvent]:
        self._sink.show(final)
        for source in list(self._texts):
            yield from self._end_text(source)
        for name in reversed(self._steps):
            yield StepFinishedEvent(step_name=name)
        status, answer = final["status"], str(final["answer"])
        if status == "failed":
            yield RunErrorEvent(message=answer, code=final["stop_reason"])
            return
        outcome: Any = RunFinishedCancelledOutcome()
        if status == "waiting":
            asked = [_interrupt(question) for question in self._sink.questions]
            outcome = RunFinishedInterruptOutcome(interrupts=asked)
        elif status != "cancelled":
            outcome = RunFinishedSuccessOutcome()
            # The client would have to run a call without a result.
            for number, call in enumerate(list(self._unanswered)):
                yield from self._result(call, NOT_RUN, f"{self._run}-{number}")
            if answer.strip() and answer.strip() != self._said:
                yield from self._whole_text(f"{self._run}-answer", answer)
        shown = ("status", "stop_reason", "answer", "structured", "usage")
        result = {**{name: final[name] for name in shown}, "artifacts": files}
        yield RunFinishedEvent(
            thread_id=self._thread, run_id=self._run, result=result, outcome=outcome
        )

    def _add_text(self, source: str, text: str, event: Mapping[str, Any]) -> Iterator[BaseEvent]:
        if source not in self._texts:
            self._texts[source] = _message_id(event)
            yield TextMessageStartEvent(message_id=self._texts[source], role="assistant")
        yield TextMessageContentEvent(message_id=self._texts[source], delta=text)

    def _end_text(self, source: str) -> Iterator[BaseEvent]:
        if message := self._texts.pop(source, None):
            yield TextMessageEndEvent(message_id=message)

    def _whole_text(self, message: str, text: str) -> Iterator[BaseEvent]:
        yield TextMessageStartEvent(message_id=message, role="assistant")
        yield TextMessageContentEvent(message_id=message, delta=text)
        yield TextMessageEndEvent(message_id=message)

    def _reply(self, source: str, event: Mapping[str, Any]) -> Iterator[BaseEvent]:
        message, text = self._texts.get(source), str(event["text"]).strip()
        if message is not None:
            yield from self._end_text(source)
        else:
            message = _message_id(event)
            if text:
                yield from self._whole_text(message, text)
        if text and not source:
            self._said = text
        for call in event["tool_calls"]:
            name = {"tool_call_id": call["call_id"]}
            self._unanswered.append(call["call_id"])
            yield ToolCallStartEvent(**name, tool_call_name=call["tool"], parent_message_id=message)
            args = json.dumps(call["args"], ensure_ascii=False)
            yield ToolCallArgsEvent(**name, delta=args)
            yield ToolCallEndEvent(**name)

    def _result(self, call: str, text: str, message: str) -> Iterator[BaseEvent]:
        if call in self._unanswered:
            self._unanswered.remove(call)
        yield ToolCallResultEvent(message_id=message, tool_call_id=call, content=text, role="tool")

    def _step(self, name: str, event: Mapping[str, Any]) -> Iterator[BaseEvent]:
        starts, known = event["type"] == "step_start", name in self._steps
        if starts and not known:
            self._steps.append(name)
            yield StepStartedEvent(step_name=name)
        elif known and not starts:
            self._steps.remove(name)
            yield StepFinishedEvent(step_name=name)
        yield CustomEvent(name=event["type"], value=dict(event))


def _message_id(event: Mapping[str, Any]) -> str:
    return f"msg-{event['seq']}"


def _interrupt(question: Mapping[str, Any]) -> Interrupt:
    kind, calls = question["kind"], question["calls"]
    return Interrupt(
        id=question["id"],
        reason=_REASONS.get(kind, "confirmation"),
        message=question["question"],
        tool_call_id=calls[0]["call_id"] or None if calls else None,
        response_schema=_answer_schema(kind),
        metadata={
            name: question[name] for name in ("calls", "plan_step", "browser") if name in question
        },
    )


def _answer_schema(kind: str) -> dict[str, Any]:
    if kind == "question":
        return {"type": "string"}
    edit = ["edit"] if kind == "approval" else []
    words = ["approve", *edit, "reject", "respond"]
    fields = {
        "type": {"type": "string", "enum": words},
        "args": {"type": "object", "description": "Of an edit: the call's new arguments."},
        "message": {"type": "string", "description": "Why it is rejected, or the call's result."},
        "remember": {"type": "boolean", "description": "Approve calls of this kind from now on."},
    }
    return {"type": "object", "properties": fields, "required": ["type"]}


def read_messages(messages: Iterable[Message], context: Iterable[Context]) -> Prompt:
    """Read a conversation, oldest message first. The application's `context` joins the newest turn.

    Tools' results, reasoning and activities are left out: the thread has what the agent did.
    """
    instructions, turns = list[str](), list[Turn]()
    for message in messages:
        match message.role:
            case "system" | "developer":
                instructions.append(message.content)
            case "user":
                turns.append(_user_turn(message.content))
            case "assistant" if message.content:
                turns.append(Turn("assistant", message.content))
            case _:
                pass
    newest = turns[-1] if turns else None
    if newest is None or newest.role != "user" or not (newest.text.strip() or newest.files):
        raise Refused(422, "The last message must be the user's, and say something.")
    reported = "\n".join(f"- {one.description}: {one.value}" for one in context)
    if reported:
        turns[-1] = replace(newest, text=f"{newest.text}\n\nThe application says:\n{reported}")
    return Prompt("\n\n".join(instructions), tuple(turns))


def _user_turn(content: str | Sequence[ContentPart]) -> Turn:
    if isinstance(content, str):
        return Turn("user", content, words=content)
    texts = [part.text for part in content if isinstance(part, TextPart)]
    files = [
        _upload(part, number)
        for number, part in enumerate(content, start=1)
        if not isinstance(part, TextPart)
    ]
    return Turn("user", "\n\n".join(texts), tuple(files), "".join(texts[:1]))


def _upload(part: ContentPart, number: int) -> Upload:
    source = None if isinstance(part, TextPart) else part.source
    if not isinstance(source, DataSource):
        raise Refused(
            422,
            f"The {part.type} is not in the message. This server does not fetch addresses: "
            "send the bytes, or name the address in the text, and the agent can open it.",
        )
    try:
        data = base64.b64decode(source.value, validate=True)
    except ValueError as error:
        raise Refused(422, f"The {part.type}'s data is not base64: {error}.") from error
    suffix = mimetypes.guess_extension(source.mime_type) or ""
    return Upload(f"{part.type}-{number}{suffix}", data, source.mime_type)


router = APIRouter(prefix="/ag-ui")


@router.post("")
async def run_default_agent(wanted: RunAgentInput, request: Request) -> StreamingResponse:
    return await run_agent(DEFAULT_AGENT, wanted, request)


@router.post("/{agent}")
async def run_agent(agent: str, wanted: RunAgentInput, request: Request) -> StreamingResponse:
    if agent not in agent_names():
        raise Refused(404, f"There is no agent {agent!r}. Available: {', '.join(agent_names())}.")
    if wanted.tools:
        raise Refused(
            422,
            "An agent calls its own tools, never the client's: leave `tools` empty. Tools for the "
            "agent come from MCP servers.",
        )
    thread = thread_of(wanted.thread_id)
    await store.own_server.connect().threads.create(thread_id=thread, if_exists="do_nothing")
    if wanted.resume:
        after = await store.current().journal.last(thread)
        answers = RunRequest(answers=answers_of(wanted.resume))
        run = AgentRun(await start_or_resume(thread, answers), thread, after)
    else:
        prompt = read_messages(wanted.messages, wanted.context or ())
        run = await start_prompt(agent, thread, prompt)
    return store.event_stream(_events(run, wanted, str(request.base_url)))


def thread_of(name: str) -> str:
    """Return the thread of a conversation: the same name, if it can be a thread's."""
    try:
        return str(uuid.UUID(name))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"ag-ui:{name}"))


def answers_of(resume: Iterable[ResumeEntry]) -> dict[str, Any]:
    """Return the answers of a request, by question; abandoned questions are rejected.

    Refused if a resolved one has no answer.
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
    """Stream a run's events in AG-UI's form. Hanging up before the end cancels the run."""
    encode, ended = EventEncoder().encode, False
    translator = EventTranslator(wanted.thread_id, wanted.run_id)
    try:
        thread, name = wanted.thread_id, wanted.run_id
        yield encode(
            RunStartedEvent(thread_id=thread, run_id=name, protocol_version=PROTOCOL_VERSION)
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
    except Refused as error:
        yield encode(RunErrorEvent(message=str(error), code=error.code))
    finally:
        if not ended:
            cancel_in_background(run)
