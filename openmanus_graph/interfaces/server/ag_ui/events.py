"""Translates a run's events into AG-UI's."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    Interrupt,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    StepFinishedEvent,
    StepStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)

from openmanus_graph.interfaces.service.runs import Final, RemoteView

NOT_RUN = "This call was not run: the run ended before."
_REASONS = {"question": "input_required", "approval": "tool_call"}
"""AG-UI's words for what is asked; the outcome of a call that a crash cut off is a confirmation."""
_DECISIONS = {"approval": ["approve", "edit", "reject", "respond"]}
_OTHER_DECISIONS = ["approve", "reject", "respond"]
_TOLD_ELSEWHERE = ("run_start", "tool_start", "interrupt", "answered")
"""Events that others of AG-UI's say already."""


class EventTranslator:
    """Translates the events of one run, in order.

    Args:
        thread: The client's name of the conversation.
        run: The client's name of the run.
    """

    def __init__(self, thread: str, run: str) -> None:
        self._thread, self._run = thread, run
        self._view = RemoteView(lambda event: None)
        self._texts: dict[str, str] = {}
        """Ids of the messages that are being written, by the plan step that writes them."""
        self._unanswered: list[str] = []
        """Ids of the calls without a result."""
        self._steps: list[str] = []
        """Names of the plan steps and helpers at work."""
        self._said = ""
        """The agent's newest text."""

    def translate(self, event: Mapping[str, Any]) -> Iterator[BaseEvent]:
        """Yield what AG-UI's clients are told about an event; `final` only by `end`."""
        self._view.show(event)
        source = str(event.get("plan_step", ""))
        match event["type"]:
            case "think_start":  # what came of an earlier attempt is void
                yield from self._end_text(source)
            case "token":
                yield from self._add_text(source, event["text"], event)
            case "think_end":
                yield from self._reply(source, event)
            case "tool_end":
                yield from self._result(event["call_id"], event["output"], _message_id(event))
            case "step_start" | "step_end":
                yield from self._step("/".join(filter(None, (source, event["id"]))), event)
            case kind if kind not in _TOLD_ELSEWHERE:
                yield CustomEvent(name=kind, value=dict(event))
            case _:
                pass

    def end(self, final: Final, files: list[dict[str, Any]]) -> Iterator[BaseEvent]:
        """Yield how the run ended.

        Args:
            final: The `final` event.
            files: The run's files, with their addresses.
        """
        self._view.show(final)
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
            asked = [_interrupt(question) for question in self._view.questions]
            outcome = RunFinishedInterruptOutcome(interrupts=asked)
        elif status != "cancelled":
            outcome = RunFinishedSuccessOutcome()
            # A call without a result would be one that the client is to run.
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
        """Yield the end of a reply: its text, as far as it was not streamed, and its calls."""
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
        begins, known = event["type"] == "step_start", name in self._steps
        if begins and not known:
            self._steps.append(name)
            yield StepStartedEvent(step_name=name)
        elif known and not begins:
            self._steps.remove(name)
            yield StepFinishedEvent(step_name=name)
        yield CustomEvent(name=event["type"], value=dict(event))


def _message_id(event: Mapping[str, Any]) -> str:
    """Return the id of a message that begins with an event: events are numbered."""
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
    """Return the JSON schema of the answers to a kind of question."""
    if kind == "question":
        return {"type": "string"}
    words = _DECISIONS.get(kind, _OTHER_DECISIONS)
    fields = {
        "type": {"type": "string", "enum": words},
        "args": {"type": "object", "description": "Of an edit: the call's new arguments."},
        "message": {"type": "string", "description": "Why it is rejected, or the call's result."},
        "remember": {"type": "boolean", "description": "Approve calls of this kind from now on."},
    }
    return {"type": "object", "properties": fields, "required": ["type"]}
