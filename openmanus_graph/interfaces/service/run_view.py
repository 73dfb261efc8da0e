"""A run and its thread as all interfaces show them: events, the `final` one, a transcript."""

import itertools
import json
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.types import StateSnapshot

from openmanus_graph.backends.models.prices import usage_of
from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.checkpoints import EmbeddedAgents, read_embedded_agents
from openmanus_graph.backends.persistence.recording import Recording
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.conversation.history import BEFORE_KEY, as_said, is_steering, last_text
from openmanus_graph.graphs.catalog import is_ours
from openmanus_graph.planning.flow import plan_of
from openmanus_graph.planning.plan import plan_document
from openmanus_graph.runtime.events import GRAPH_EVENTS, interrupt_event
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.manus import (
    Artifact,
    Claims,
    ClaimSource,
    Plan,
    Usage,
    add_usage,
    no_claims,
    no_usage,
)
from openmanus_graph.state.planning import EVENT_FIELDS, plan_fields
from openmanus_graph.state.settings import Settings

NO_RESULT = (
    "The run ended without a result, because its process was stopped. Resume the thread, or look "
    "into the log."
)
SHOWN_OUTPUT_CHARS = 2000
QUESTION_CHARS = 160
Runs = Mapping[str, list[list[AnyMessage]]]
"""By step: the conversation of each of its runs, oldest first."""
_REPLIES = {
    "question": " --answer TEXT",
    "approval": " --approve",
    "unknown_outcome": " --approve",
}
_LIMIT_OPTIONS = {
    "max_steps": "--max-steps",
    "max_cost_usd": "--max-cost-usd",
    "max_total_tokens": "--max-tokens",
    "timeout_s": "--timeout",
}
"""The option that raises a limit, by the limit's setting."""
_OF_THE_WHOLE_PLAN = ("step_start", "step_end", "plan", "plan_change")
"""Events about a plan that the graph of one of its steps sends."""


async def read_usage(graph: Any, config: Mapping[str, Any], state: StateSnapshot) -> Usage:
    """Return the usage of a run, with that of unfinished tasks and of the graphs inside them."""
    if state.tasks:
        state = await graph.aget_state(config, subgraphs=True)
    return _total_usage(state)


def _total_usage(state: StateSnapshot) -> Usage:
    total = no_usage()
    if isinstance(state.values, Mapping):  # a third-party graph may have anything there
        total = cast("Mapping[str, Any]", state.values).get("usage") or total
    for task in state.tasks:
        # The usage of a task that has ended, and waits for parallel ones, is in `values` already.
        if task.result is None and isinstance(task.state, StateSnapshot):
            total = add_usage(total, _total_usage(task.state))
    return total


async def agents_within(
    agent: str, thread: str, state: StateSnapshot, saver: Checkpointer
) -> EmbeddedAgents | None:
    """Return how the agents inside a third-party graph ended; None if its state says so itself."""
    if is_ours(agent) or "status" in state.values:
        return None
    return await read_embedded_agents(saver, thread)


def final_event(
    state: StateSnapshot,
    usage: Usage | None = None,
    agents: EmbeddedAgents | None = None,
    *,
    cancelled: bool,
) -> dict[str, Any]:
    """Return the `final` event of a run that ended or was cut off.

    `usage` is needed if the state does not hold all of it, `agents` for a third-party graph, whose
    own state does not say how they ended.
    """
    values = state.values
    status, reason = values.get("status"), values.get("stop_reason")
    answer = values.get("answer", "")
    if state.interrupts:
        asked = interrupt_event(state.interrupts[0])
        status, reason, answer = "waiting", asked["kind"], asked["question"]
    elif status is None and not state.tasks:  # a third-party graph
        status, reason, answer = _third_party_outcome(last_text(values.get("messages", [])), agents)
    elif cancelled and state.tasks:
        status = reason = "cancelled"
        answer = last_text(values.get("messages", [])) or "The run was cancelled."
    return {
        "type": "final",
        "status": status or "failed",
        "stop_reason": reason or "error",
        "answer": answer,
        "resume": None,
        "claims": values.get("claims") or no_claims(),
        "sources": values.get("sources") or [],
        "structured": values.get("structured"),
        "usage": usage or values.get("usage") or no_usage(),
        "artifacts": values.get("artifacts") or [],
    }


def claims_line(claims: Claims) -> str:
    """Return how many claims of an answer have a source; empty if it has none."""
    if not claims["checked"]:
        return ""
    figures = "figure" if claims["checked"] == 1 else "figures"
    return (
        f"{claims['checked']} {figures}: {claims['found']} found, {claims['not_found']} not found"
    )


def source_lines(sources: Sequence[ClaimSource]) -> Iterator[str]:
    """Yield a footnote for each claim: what it says, and where it comes from."""
    for number, one in enumerate(sources, 1):
        place = " ".join(filter(None, (one["source"], one["call_id"] and f"({one['call_id']})")))
        facts = [one["kind"].replace("_", " "), one["file"] and f"in {one['file']}", place]
        excerpt = one["excerpt"].replace("\n", " ")
        yield f"[{number}] {one['text']}: {', '.join(filter(None, facts))}" + (
            f": {excerpt}" if excerpt else ""
        )


def _third_party_outcome(
    last: str, agents: EmbeddedAgents | None
) -> tuple[str | None, str | None, str]:
    inner = agents.unfinished if agents else None
    if inner is None:
        return ("finished", "answer", last) if last else (None, None, "")
    why = str(inner.get("answer") or "")
    answer = last if why in last else "\n\n".join(filter(None, (last, why)))
    return inner["status"], inner.get("stop_reason"), answer


def final_without_state(
    answer: str, *, status: str = "failed", reason: str = "error", usage: Usage | None = None
) -> dict[str, Any]:
    """Return the `final` event of a run that left no state to read."""
    return {
        "type": "final",
        "status": status,
        "stop_reason": reason,
        "answer": answer,
        "resume": None,
        "claims": no_claims(),
        "sources": [],
        "structured": None,
        "usage": usage or no_usage(),
        "artifacts": [],
    }


def resume_command(final: Mapping[str, Any], limit: Mapping[str, Any]) -> str | None:
    """Return the command that continues a run of the terminal; None if it is over.

    `limit` is the event of the limit that ended it, or empty.
    """
    reason = final["stop_reason"]
    if final["status"] not in ("waiting", "stopped", "cancelled") and reason != "error":
        return None
    reply = _REPLIES.get(reason, "")
    if option := _LIMIT_OPTIONS.get(limit.get("setting", "")):
        higher = limit["higher"]  # written without an exponent, large ones whole
        reply = f" {option} " + (f"{math.ceil(higher)}" if higher >= 1000 else f"{higher:.4g}")
    return f"openmanus resume {shlex.quote(final['thread'])}{reply}"


def cancelled_event(answer: str) -> dict[str, Any]:
    return final_without_state(answer, status="cancelled", reason="cancelled")


class StepEventTagger:
    """Adds `plan_step` to the events of plan steps; a step's first event is its `step_start`."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, ...], str] = {}
        """By the namespaces of their graphs."""

    def event(self, namespace: Sequence[str], streamed: Any) -> dict[str, Any] | None:
        """Return an event, with `plan_step` if it is of a step; None if it is not one of ours.

        A user's tool may write anything to the stream.
        """
        if not isinstance(streamed, Mapping):
            return None
        event = cast("Mapping[str, Any]", streamed)
        if event.get("type") not in GRAPH_EVENTS or (namespace and event["type"] == "limit"):
            return None  # a plan's step may end at its own limit
        place = tuple(namespace)
        subagent = tuple(str(event.get("namespace") or "").split("|"))
        if event["type"] == "step_start":
            self._steps[subagent if subagent[0] else place] = str(event["id"])
        if event["type"] in _OF_THE_WHOLE_PLAN and not subagent[0]:
            place = place[:-1]
        return {**self.step_at(place), **event}

    def step_at(self, place: tuple[str, ...]) -> dict[str, str]:
        """Return `plan_step` for a namespace, if it is of a step."""
        around = (place[:length] for length in range(1, len(place) + 1))
        steps = [self._steps[outer] for outer in around if outer in self._steps]
        return {"plan_step": "/".join(steps)} if steps else {}


async def read_conversations(
    graph: Any, saver: Checkpointer, thread: str, values: Mapping[str, Any]
) -> tuple[dict[str, Any], Runs]:
    """Return a thread's state with all that was said in it, and the runs of its plan's steps."""
    said = await whole_conversation(graph, thread, values.get("messages", []))
    runs = await runs_of_steps(graph, saver, thread, values)
    return {**values, "messages": said}, runs


async def whole_conversation(
    graph: Any, thread: str, messages: Sequence[AnyMessage], namespace: str = ""
) -> list[AnyMessage]:
    """Return a conversation as it was said, including what compaction has replaced since.

    If the checkpoint of an earlier part is gone, that part is missing.
    """
    parts = [messages]
    while before := _whole_at(parts[0]):
        place = {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": before}
        state = await graph.aget_state({"configurable": place})
        parts.insert(0, state.values.get("messages", []))
    said: dict[Any, AnyMessage] = {}
    for message in itertools.chain(*parts):
        said.setdefault(message.id or id(message), message)
    return [as_said(message) for message in said.values()]


def _whole_at(messages: Sequence[AnyMessage]) -> str:
    """Return the id of the checkpoint with the whole of a compacted conversation, or nothing."""
    return next(
        (kept for one in reversed(messages) if (kept := one.additional_kwargs.get(BEFORE_KEY))), ""
    )


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
    thread: Thread | Recording, messages: Iterable[AnyMessage]
) -> Iterator[dict[str, Any]]:
    step = 0
    for message in messages:
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


def step_line(event: Mapping[str, Any]) -> str:
    what = "Subagent" if event.get("namespace") else "Plan step"
    return f"{what} {event['id']}: {event['status']}."


def model_label(settings: Settings) -> str:
    """Return the name of a run's model for its `run_start` event: its spec, or its class."""
    model = settings.main.model
    return model if isinstance(model, str) else type(model).__name__


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
        messages = await whole_conversation(graph, thread, messages, namespace)
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
