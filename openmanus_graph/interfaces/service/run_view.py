"""A run as all interfaces show it: its events, the `final` one, and what they say."""

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from langgraph.types import StateSnapshot

from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.checkpoints import EmbeddedAgents, read_embedded_agents
from openmanus_graph.conversation.history import last_text
from openmanus_graph.graphs.catalog import is_ours
from openmanus_graph.runtime.events import GRAPH_EVENTS, interrupt_event
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.manus import (
    Claims,
    ClaimSource,
    Usage,
    add_usage,
    no_claims,
    no_usage,
)
from openmanus_graph.state.settings import Settings

NO_RESULT = (
    "The run ended without a result, because its process was stopped. Resume the thread, or look "
    "into the log."
)
QUESTION_CHARS = 160
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


def step_line(event: Mapping[str, Any]) -> str:
    what = "Subagent" if event.get("namespace") else "Plan step"
    return f"{what} {event['id']}: {event['status']}."


def model_label(settings: Settings) -> str:
    """Return the name of a run's model for its `run_start` event: its spec, or its class."""
    model = settings.main.model
    return model if isinstance(model, str) else type(model).__name__


def questions_of(state: StateSnapshot) -> str:
    """Write the open questions, one per line: id, the asking step or subagent, question."""
    lines: list[str] = []
    for event in map(interrupt_event, state.interrupts):
        asker = f"[{event['plan_step']}]" if event.get("plan_step") else ""
        calls = [f"{call['tool']} {json.dumps(call['args'])}:" for call in event["calls"]]
        text = printable(" ".join([asker, *calls, *event["question"].split()]).strip())
        lines.append(f"\n  {event['id']}  {text[:QUESTION_CHARS]}")
    return "".join(lines)
