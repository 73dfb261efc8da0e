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

from ag_ui import core
from ag_ui.core.types import ContentPart
from ag_ui.encoder import EventEncoder
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from openmanus_graph.graphs.catalog import DEFAULT_AGENT, agent_names
from openmanus_graph.interfaces.server import runs, store
from openmanus_graph.interfaces.service.accounts import Refused
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

    def translate(self, event: Mapping[str, Any]) -> Iterator[core.BaseEvent]:
        """Yield AG-UI's events for an event, except `final`: see `end`."""
        self._sink.show(event)
        source = str(event.get("plan_step", ""))
        match event["type"]:
            case "think_start":  # the text of an earlier attempt is void
                yield from self._end_text(source)
            case "token":
                yield from self._add_text(source, event)
            case "think_end":
                yield from self._reply(source, event)
            case "tool_end" if "parent" not in event:
                yield from self._result(event["call_id"], event["output"], _message_id(event))
            case "step_start" | "step_end":
                yield from self._step("/".join(filter(None, (source, event["id"]))), event)
            case kind if kind not in _SHOWN_OTHERWISE:
                yield core.CustomEvent(name=kind, value=dict(event))
            case _:
                pass

    def end(self, final: Final, files: list[dict[str, Any]]) -> Iterator[core.BaseEvent]:
        self._sink.show(final)
        for source in list(self._texts):
            yield from self._end_text(source)
        for name in reversed(self._steps):
            yield core.StepFinishedEvent(step_name=name)
        status, answer = final["status"], str(final["answer"])
        if status == "failed":
            yield core.RunErrorEvent(message=answer, code=final["stop_reason"])
            return
        outcome: Any = core.RunFinishedCancelledOutcome()
        if status == "waiting":
            asked = [_interrupt(question) for question in self._sink.questions]
            outcome = core.RunFinishedInterruptOutcome(interrupts=asked)
        elif status != "cancelled":
            outcome = core.RunFinishedSuccessOutcome()
            # The client would have to run a call without a result.
            for number, call in enumerate(list(self._unanswered)):
                yield from self._result(call, NOT_RUN, f"{self._run}-{number}")
            if answer.strip() and answer.strip() != self._said:
                yield from self._whole_text(f"{self._run}-answer", answer)
        shown = ("status", "stop_reason", "answer", "structured", "usage")
        result = {**{name: final[name] for name in shown}, "artifacts": files}
        names: dict[str, Any] = {"thread_id": self._thread, "run_id": self._run}
        yield core.RunFinishedEvent(**names, result=result, outcome=outcome)

    def _add_text(self, source: str, event: Mapping[str, Any]) -> Iterator[core.BaseEvent]:
        if source not in self._texts:
            self._texts[source] = _message_id(event)
            yield core.TextMessageStartEvent(message_id=self._texts[source], role="assistant")
        message = self._texts[source]
        yield core.TextMessageContentEvent(message_id=message, delta=event["text"])

    def _end_text(self, source: str) -> Iterator[core.BaseEvent]:
        if message := self._texts.pop(source, None):
            yield core.TextMessageEndEvent(message_id=message)

    def _whole_text(self, message: str, text: str) -> Iterator[core.BaseEvent]:
        yield core.TextMessageStartEvent(message_id=message, role="assistant")
        yield core.TextMessageContentEvent(message_id=message, delta=text)
        yield core.TextMessageEndEvent(message_id=message)

    def _reply(self, source: str, event: Mapping[str, Any]) -> Iterator[core.BaseEvent]:
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
            tool, args = call["tool"], json.dumps(call["args"], ensure_ascii=False)
            yield core.ToolCallStartEvent(**name, tool_call_name=tool, parent_message_id=message)
            yield core.ToolCallArgsEvent(**name, delta=args)
            yield core.ToolCallEndEvent(**name)

    def _result(self, call: str, text: str, message: str) -> Iterator[core.BaseEvent]:
        if call in self._unanswered:
            self._unanswered.remove(call)
        yield core.ToolCallResultEvent(
            message_id=message, tool_call_id=call, content=text, role="tool"
        )

    def _step(self, name: str, event: Mapping[str, Any]) -> Iterator[core.BaseEvent]:
        starts, known = event["type"] == "step_start", name in self._steps
        if starts and not known:
            self._steps.append(name)
            yield core.StepStartedEvent(step_name=name)
        elif known and not starts:
            self._steps.remove(name)
            yield core.StepFinishedEvent(step_name=name)
        yield core.CustomEvent(name=event["type"], value=dict(event))


def _message_id(event: Mapping[str, Any]) -> str:
    return f"msg-{event['seq']}"


def _interrupt(question: Mapping[str, Any]) -> core.Interrupt:
    kind, calls = question["kind"], question["calls"]
    types = ["approve", *(["edit"] if kind == "approval" else []), "reject", "respond"]
    fields = {
        "type": {"type": "string", "enum": types},
        "args": {"type": "object", "description": "Of an edit: the call's new arguments."},
        "message": {"type": "string", "description": "Why it is rejected, or the call's result."},
        "remember": {"type": "boolean", "description": "Approve calls of this kind from now on."},
    }
    decision = {"type": "object", "properties": fields, "required": ["type"]}
    shown = ("calls", "plan_step", "browser")
    return core.Interrupt(
        id=question["id"],
        reason=_REASONS.get(kind, "confirmation"),
        message=question["question"],
        tool_call_id=calls[0]["call_id"] or None if calls else None,
        response_schema={"type": "string"} if kind == "question" else decision,
        metadata={name: question[name] for name in shown if name in question},
    )


def read_messages(messages: Iterable[core.Message], context: Iterable[core.Context]) -> runs.Prompt:
    """Read a conversation, oldest message first. The application's `context` joins the newest turn.

    Tools' results, reasoning and activities are left out: the thread has what the agent did.
    """
    instructions, turns = list[str](), list[runs.Turn]()
    for message in messages:
        match message.role:
            case "system" | "developer":
                instructions.append(message.content)
            case "user":
                turns.append(_user_turn(message.content))
            case "assistant" if message.content:
                turns.append(runs.Turn("assistant", message.content))
            case _:
                pass
    newest = turns[-1] if turns else None
    if newest is None or newest.role != "user" or not (newest.text.strip() or newest.files):
        raise Refused(422, "The last message must be the user's, and say something.")
    reported = "\n".join(f"- {one.description}: {one.value}" for one in context)
    if reported:
        turns[-1] = replace(newest, text=f"{newest.text}\n\nThe application says:\n{reported}")
    return runs.Prompt("\n\n".join(instructions), tuple(turns))


def _user_turn(content: str | Sequence[ContentPart]) -> runs.Turn:
    texts, files = list[str](), list[Upload]()
    parts = [core.TextPart(text=content)] if isinstance(content, str) else content
    for number, part in enumerate(parts, start=1):
        if isinstance(part, core.TextPart):
            texts.append(part.text)
        else:
            files.append(_upload(part, number))
    return runs.Turn("user", "\n\n".join(texts), tuple(files), "".join(texts[:1]))


def _upload(part: ContentPart, number: int) -> Upload:
    source = None if isinstance(part, core.TextPart) else part.source
    if not isinstance(source, core.DataSource):
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
async def run_default_agent(wanted: core.RunAgentInput, request: Request) -> StreamingResponse:
    return await run_agent(DEFAULT_AGENT, wanted, request)


@router.post("/{agent}")
async def run_agent(agent: str, wanted: core.RunAgentInput, request: Request) -> StreamingResponse:
    if agent not in agent_names():
        raise Refused(404, f"There is no agent {agent!r}. Available: {', '.join(agent_names())}.")
    if wanted.tools:
        raise Refused(
            422,
            "An agent calls its own tools, never the client's: leave `tools` empty. Tools for the "
            "agent come from MCP servers.",
        )
    base_url = str(request.base_url)
    try:  # the same name, if it can be a thread's
        thread = str(uuid.UUID(wanted.thread_id))
    except ValueError:
        thread = str(uuid.uuid5(uuid.NAMESPACE_URL, f"ag-ui:{wanted.thread_id}"))
    await store.ensure_thread(thread)
    if wanted.resume:
        after = await store.current().journal.last(thread)
        answers = runs.RunRequest(answers=answers_of(wanted.resume))
        run = runs.AgentRun(
            await runs.start_or_resume(thread, answers, trigger="ag-ui"), thread, after, base_url
        )
    else:
        prompt = read_messages(wanted.messages, wanted.context or ())
        run = await runs.start_prompt(agent, thread, prompt, base_url, trigger="ag-ui")
    return store.event_stream(_events(run, wanted))


def answers_of(resume: Iterable[core.ResumeEntry]) -> dict[str, Any]:
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


async def _events(run: runs.AgentRun, wanted: core.RunAgentInput) -> AsyncGenerator[str]:
    """Stream a run's events in AG-UI's form. Hanging up before the end cancels the run."""
    encode, ended = EventEncoder().encode, False
    translator = EventTranslator(wanted.thread_id, wanted.run_id)
    try:
        names: dict[str, Any] = {"thread_id": wanted.thread_id, "run_id": wanted.run_id}
        yield encode(core.RunStartedEvent(**names, protocol_version=core.PROTOCOL_VERSION))
        async with aclosing(runs.follow_events(run)) as events:
            async for event in events:
                if not event:
                    yield runs.PING
                    continue
                ended = event["type"] == "final"
                end, translate = translator.end, translator.translate
                for translated in end(event, run.files(event)) if ended else translate(event):
                    yield encode(translated)
    except Refused as error:
        yield encode(core.RunErrorEvent(message=str(error), code=error.code))
    finally:
        if not ended:
            runs.cancel_in_background(run)
