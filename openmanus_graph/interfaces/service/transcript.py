"""Writes a thread as Markdown, with the conversations of its plan's steps, and its questions."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.types import StateSnapshot

from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.planning.flow import plan_of
from openmanus_graph.planning.plan import plan_document
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.manus import Artifact
from openmanus_graph.state.plan import Plan

SHOWN_OUTPUT_CHARS = 2000
QUESTION_CHARS = 160
Runs = Mapping[str, list[list[AnyMessage]]]
"""By step: the conversation of each of its runs, oldest first."""


def plan_in(values: Mapping[str, Any]) -> Plan | None:
    """Return the plan of a thread's state, if it is a planning graph's and has one."""
    if not values.get("order"):
        return None
    return plan_of(values)  # type: ignore[arg-type]  # only the planning state has `order`


async def runs_of_steps(
    graph: Any, checkpointer: Checkpointer, thread: str, values: Mapping[str, Any]
) -> Runs:
    """Read the conversations of the newest plan's steps."""
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
    yield f"# Thread {thread.id}\n\n{thread.agent} · {thread.status} · {thread.updated}\n"
    messages: list[AnyMessage] = values.get("messages", [])
    asked = 1 + max((n for n, m in enumerate(messages) if m.type == "human"), default=-1)
    for message in messages[:asked]:
        yield from _message(message, cut=cut)
    yield from _plan(values, runs, cut=cut)
    for message in messages[asked:]:
        yield from _message(message, cut=cut)
    usage = values.get("usage")
    if usage:
        yield (
            f"---\n{usage['model_calls']} model calls, {usage['input_tokens']} tokens in, "
            f"{usage['output_tokens']} out, ${usage['cost_usd']:.4f}"
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
            yield f"{step['result']}\n"
    for name in runs.keys() - {step["id"] for step in plan["steps"]}:
        yield f"## Step {name}, which was replaced\n"
        yield from _runs(runs[name], cut=cut)


def _runs(runs: Sequence[Sequence[AnyMessage]], *, cut: bool) -> Iterator[str]:
    for attempt, messages in enumerate(runs, 1):
        if len(runs) > 1:
            yield f"### Run {attempt}\n"
        for message in messages[1:] if cut else messages:
            yield from _message(message, cut=cut, level="###")


def _message(message: AnyMessage, *, cut: bool, level: str = "##") -> Iterator[str]:
    text = str(message.text)
    if isinstance(message, HumanMessage):
        lines = text.replace("\n", "  \n")  # Markdown's mark of a line break
        yield f"{level} User\n\n{lines}\n"
    elif isinstance(message, AIMessage):
        yield f"{level} Agent\n\n{text}\n" if text.strip() else f"{level} Agent\n"
        for call in message.tool_calls:
            args = json.dumps(call["args"], ensure_ascii=False, indent=1)
            yield f"**{call['name']}**\n\n{_fenced(args, 'json')}"
    elif isinstance(message, ToolMessage):
        if cut and len(text) > SHOWN_OUTPUT_CHARS:
            left_out = len(text) - SHOWN_OUTPUT_CHARS
            text = f"{text[:SHOWN_OUTPUT_CHARS]}\n[... {left_out} more characters]"
        yield f"{message.name} ({message.status}):\n\n{_fenced(text)}"


def _fenced(text: str, language: str = "") -> str:
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}\n"


def questions_of(state: StateSnapshot) -> str:
    """Write the open questions, one per line: id, the asking step or subagent, question."""
    lines: list[str] = []
    for event in map(interrupt_event, state.interrupts):
        asker = f"[{event['plan_step']}]" if event.get("plan_step") else ""
        calls = [f"{call['tool']} {json.dumps(call['args'])}:" for call in event["calls"]]
        text = printable(" ".join([asker, *calls, *event["question"].split()]).strip())
        lines.append(f"\n  {event['id']}  {text[:QUESTION_CHARS]}")
    return "".join(lines)
