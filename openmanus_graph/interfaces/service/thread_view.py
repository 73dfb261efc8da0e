"""A thread as its stored state has it: all that was said, as events or as a transcript."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from openmanus_graph.backends.models.prices import usage_of
from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.recording import Recording
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.conversation.history import is_steering, reasoning_of
from openmanus_graph.planning.flow import plan_of
from openmanus_graph.planning.plan import plan_document
from openmanus_graph.runtime.observations import whole_conversation
from openmanus_graph.runtime.output import money
from openmanus_graph.state.manus import (
    Artifact,
    Plan,
    no_usage,
)
from openmanus_graph.state.planning import EVENT_FIELDS, plan_fields

SHOWN_OUTPUT_CHARS = 2000
_FENCE_OR_HEADING = re.compile(
    r"^(?P<fence>```+|~~~+).*?(?:^(?P=fence)|\Z)|^#{1,6}(?=\s)", re.MULTILINE | re.DOTALL
)
Runs = Mapping[str, list[list[AnyMessage]]]
"""By step: the conversation of each of its runs, oldest first."""


async def read_conversations(
    graph: Any, saver: Checkpointer, thread: str, values: Mapping[str, Any]
) -> tuple[dict[str, Any], Runs]:
    """Return a thread's state with all that was said in it, and the runs of its plan's steps."""
    said = await whole_conversation(saver, thread, values.get("messages", []))
    runs = await runs_of_steps(graph, saver, thread, values)
    return {**values, "messages": said}, runs


def stored_events(
    thread: Thread, values: Mapping[str, Any], runs: Runs
) -> Iterator[dict[str, Any]]:
    """Yield the events of a thread, as far as its state holds them: no durations, no notices.

    Those of a plan's steps have `ns`, in place of the namespace of the graph that sent them.
    """
    messages: list[AnyMessage] = values.get("messages", [])
    plan, asked = plan_in(values), _end_of_task(messages)
    yield from events_from_messages(thread, messages[:asked])
    if plan is not None:
        yield {"type": "plan", **plan_fields(plan, EVENT_FIELDS)}
        for step in plan["steps"]:
            named = {"id": step["id"], "executor": step["executor"]}
            for attempt, conversation in enumerate(runs.get(step["id"], []), 1):
                name = f"{step['id']}/{attempt}" if attempt > 1 else step["id"]
                place = {"ns": name, "plan_step": step["id"]}
                yield {"type": "step_start", **named, "status": "in_progress", **place}
                for event in events_from_messages(thread, conversation[1:]):
                    yield {**event, **place}
            if step["status"] not in ("not_started", "in_progress"):
                yield {"type": "step_end", **named, "status": step["status"]}
    yield from events_from_messages(thread, messages[asked:])


def _end_of_task(messages: Sequence[AnyMessage]) -> int:
    """Return the index after the newest message of the user."""
    return 1 + max((n for n, m in enumerate(messages) if m.type == "human"), default=-1)


def events_from_messages(
    thread: Thread | Recording, messages: Sequence[AnyMessage]
) -> Iterator[dict[str, Any]]:
    step = 0
    for message in _as_run(messages):
        if isinstance(message, HumanMessage) and is_steering(message):
            yield {"type": "steer", "id": message.id, "text": message.text}
        elif isinstance(message, HumanMessage):
            step = 0
            yield {
                "type": "run_start",
                "kind": "start",
                "task": message.text,
                "agent": thread.agent,
                "model": str(thread.options.get("model") or ""),
                "workspace": str(thread.options.get("workspace") or ""),
            }
        elif isinstance(message, AIMessage):
            step += 1
            calls = [
                {"call_id": call["id"] or "", "tool": call["name"], "args": call["args"]}
                for call in message.tool_calls
            ]
            reply = {"step": step, "text": message.text, "tool_calls": calls}
            reported = message.usage_metadata is not None
            usage = usage_of(message).counted(None) if reported else no_usage()
            if reasoning := reasoning_of(message):
                yield {"type": "notice", "level": "info", "text": f"Reasoning: {reasoning}"}
            yield {"type": "think_end", **reply, "usage": usage, "seconds": 0.0}
            for call in calls:
                yield {"type": "tool_start", **call}
        elif isinstance(message, ToolMessage):
            yield {
                "type": "tool_end",
                "call_id": message.tool_call_id,
                "tool": message.name or "",
                "ok": message.status != "error",
                "seconds": 0.0,
                "output": message.text,
            }


def _as_run(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Return messages whose calls have the arguments that a person has changed, if one has."""
    edited, shown = dict[str | None, dict[str, Any]](), list[AnyMessage]()
    for message in reversed(messages):  # ids are unique only within a reply
        if isinstance(message, ToolMessage) and "args" in (message.artifact or ()):
            edited[message.tool_call_id] = message.artifact["args"]
        elif isinstance(message, AIMessage) and edited:
            calls = [{**c, "args": edited.pop(c["id"], c["args"])} for c in message.tool_calls]
            message = message.model_copy(update={"tool_calls": calls})
        shown.append(message)
    return shown[::-1]


def plan_in(values: Mapping[str, Any]) -> Plan | None:
    """Return the plan of a thread's state, if it is a planning graph's and has one."""
    if not values.get("order"):
        return None
    return plan_of(values)  # type: ignore[arg-type]  # only the planning state has `order`


async def runs_of_steps(
    graph: Any, checkpointer: Checkpointer, thread: str, values: Mapping[str, Any]
) -> Runs:
    found: dict[str, list[tuple[tuple[int, int], list[AnyMessage]]]] = {}
    if plan_in(values) is None:
        return {}
    started_by = re.escape(values["run_message"])
    pattern = rf"{started_by}(?:@[^/]*)*/(?P<replan>\d+)/(?P<step>.+)/(?P<attempt>\d+)"
    for namespace in await checkpointer.anamespaces(thread):
        if namespace.count("|") != 1:
            continue  # the flow itself, a step around its executor, or a graph within that
        place = {"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}
        state = await graph.aget_state(place)
        messages: list[AnyMessage] = state.values.get("messages") or []
        messages = await whole_conversation(checkpointer, thread, messages, namespace)
        # The id of the first message of a step's run holds replan, step and attempt.
        message_id = (messages[0].id or "") if messages else ""
        if match := re.fullmatch(pattern, message_id):
            run = (int(match["replan"]), int(match["attempt"])), messages
            found.setdefault(match["step"], []).append(run)
    in_order = {step: sorted(runs, key=lambda run: run[0]) for step, runs in found.items()}
    return {step: [messages for _, messages in runs] for step, runs in in_order.items()}


def transcript(
    thread: Thread, values: Mapping[str, Any], runs: Runs, *, cut: bool
) -> Iterator[str]:
    """Yield a thread as lines of Markdown, with the runs of its plan's steps.

    `cut` shortens long outputs, and leaves out the task messages of steps.
    """
    title = f"Thread {thread.id}" if cut else " ".join(thread.title.split()) or thread.id
    yield f"# {title}\n\n{thread.agent} · {thread.status} · {thread.updated}\n"
    messages = _as_run(values.get("messages", []))
    asked = _end_of_task(messages)
    for message in messages[:asked]:
        yield from _message(message, cut=cut)
    yield from _plan(values, runs, cut=cut)
    for message in messages[asked:]:
        yield from _message(message, cut=cut)
    usage = values.get("usage")
    if usage:
        yield (
            f"---\n{usage['model_calls']} model calls, {usage['input_tokens']} tokens in, "
            f"{usage['output_tokens']} out, {money(usage['cost_usd'])}"
        )
    artifacts: list[Artifact] = values.get("artifacts") or []
    for artifact in artifacts:
        yield f"- `{artifact['path']}` ({artifact['size']} bytes)"


def _plan(values: Mapping[str, Any], runs: Runs, *, cut: bool) -> Iterator[str]:
    plan = plan_in(values)
    if plan is None:
        return
    yield f"## Plan: {plan_document(plan)[2:]}"
    for step in plan["steps"]:
        if step["id"] in runs or step["result"]:
            yield f"## Step {step['id']}: {step['text']}\n"
        yield from _runs(runs.get(step["id"], []), cut=cut)
        if step["id"] not in runs and step["result"]:
            yield f"{_below(step['result'], '##')}\n"
    for name in runs.keys() - {step["id"] for step in plan["steps"]}:
        yield f"## Step {name}, which was replaced\n"
        yield from _runs(runs[name], cut=cut)


def _runs(runs: Sequence[Sequence[AnyMessage]], *, cut: bool) -> Iterator[str]:
    for attempt, messages in enumerate(runs, 1):
        if len(runs) > 1:
            yield f"### Run {attempt}\n"
        for message in _as_run(messages)[1 if cut else 0 :]:
            yield from _message(message, cut=cut, level="###")


def _message(message: AnyMessage, *, cut: bool, level: str = "##") -> Iterator[str]:
    text = str(message.text)
    if isinstance(message, HumanMessage):
        lines = _below(text, level).replace("\n", "  \n")  # Markdown's mark of a line break
        yield f"{level} User\n\n{lines}\n"
    elif isinstance(message, AIMessage):
        yield f"{level} Agent\n\n{_below(text, level)}\n" if text.strip() else f"{level} Agent\n"
        for call in message.tool_calls:
            args = json.dumps(call["args"], ensure_ascii=False, indent=1)
            yield f"**{call['name']}**\n\n{_fenced(args, 'json')}"
    elif isinstance(message, ToolMessage):
        if cut and len(text) > SHOWN_OUTPUT_CHARS:
            left_out = len(text) - SHOWN_OUTPUT_CHARS
            text = f"{text[:SHOWN_OUTPUT_CHARS]}\n[... {left_out} more characters]"
        yield f"{message.name} ({message.status}):\n\n{_fenced(text)}"


def _below(text: str, level: str) -> str:
    """Return Markdown whose headings are below a heading of this level."""
    return _FENCE_OR_HEADING.sub(
        lambda found: found[0] if found["fence"] else f"{level}{found[0]}"[:6], text
    )


def _fenced(text: str, language: str = "") -> str:
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}\n"
