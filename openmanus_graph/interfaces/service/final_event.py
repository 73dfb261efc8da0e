"""Builds the `final` event of a run from its state, for the command line and the server."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from langgraph.types import PregelTask, StateSnapshot

from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.checkpoints import EmbeddedAgents, read_embedded_agents
from openmanus_graph.conversation.history import last_text
from openmanus_graph.graphs.catalog import is_ours
from openmanus_graph.runtime.events import GRAPH_EVENTS, interrupt_event
from openmanus_graph.state.manus import Usage, add_usage, no_claims, no_usage
from openmanus_graph.state.settings import Settings


async def read_usage(graph: Any, config: Mapping[str, Any], state: StateSnapshot) -> Usage:
    """Return the usage of a run, with that of unfinished tasks and of the graphs inside them.

    Args:
        graph: The graph of the run.
        config: Names the thread.
        state: The thread's current state.
    """
    if state.tasks:
        state = await graph.aget_state(config, subgraphs=True)
    return _total_usage(state)


def _total_usage(state: StateSnapshot) -> Usage:
    total = no_usage()
    if isinstance(state.values, Mapping):  # of a third-party graph it may be anything
        total = cast("Mapping[str, Any]", state.values).get("usage") or total
    for task in state.tasks:
        # The usage of a task that has ended, and waits for parallel ones, is in `values` already.
        if task.result is None and isinstance(task.state, StateSnapshot):
            total = add_usage(total, _total_usage(task.state))
    return total


async def agents_within(
    agent: str, thread: str, state: StateSnapshot, saver: Checkpointer
) -> EmbeddedAgents | None:
    """Return how the agents inside a third-party graph ended; None if its state says so."""
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
    """Return the `final` event of a run that came to an end or was cut off.

    Args:
        state: The thread's state after the run.
        usage: The run's usage, where the state does not hold all of it.
        agents: Those inside a third-party graph, whose own state does not say how they ended.
        cancelled: Whether somebody stopped it.
    """
    values = state.values
    status, reason = values.get("status"), values.get("stop_reason")
    answer = values.get("answer", "")
    if state.interrupts:
        asked = interrupt_event(state.interrupts[0])
        status, reason, answer = "waiting", asked["kind"], asked["question"]
    elif status is None and not state.tasks:
        # A third-party graph: it has messages, but no status.
        status, reason, answer = _third_party_outcome(last_text(values.get("messages", [])), agents)
    elif cancelled and state.tasks:
        status = reason = "cancelled"
        answer = last_text(values.get("messages", [])) or "The run was cancelled."
    return {
        "type": "final",
        "status": status or "failed",
        "stop_reason": reason or "error",
        "answer": answer,
        "claims": values.get("claims") or no_claims(),
        "structured": values.get("structured"),
        "usage": usage or values.get("usage") or no_usage(),
        "artifacts": values.get("artifacts") or [],
    }


def _third_party_outcome(
    last: str, agents: EmbeddedAgents | None
) -> tuple[str | None, str | None, str]:
    """Derive a third-party graph's status, stop reason and answer from its last text and agents."""
    inner = agents.unfinished if agents else None
    if inner is None:
        return ("finished", "answer", last) if last else (None, None, "")
    reason_text = str(inner.get("answer") or "")
    answer = last if reason_text in last else "\n\n".join(filter(None, (last, reason_text)))
    return inner["status"], inner.get("stop_reason"), answer


def recursion_event(agent: str, usage: Usage) -> dict[str, Any]:
    """Return the `final` event of a run that took more steps than its graph allows."""
    return {
        **failed_event(
            f"The graph of {agent} reached its recursion limit without an end. Give it a way to "
            "end, or a higher recursion_limit; a resumed run goes on where it stopped.",
            {"usage": usage},
        ),
        "status": "stopped",
        "stop_reason": "max_steps",
    }


NO_RESULT = (
    "The run ended without a result: what it ran in was stopped. Resume the thread, or look into "
    "the log."
)


def failed_event(sentence: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `final` event of a run that an error ended."""
    return {
        "type": "final",
        "status": "failed",
        "stop_reason": "error",
        "answer": sentence,
        "claims": no_claims(),
        "structured": None,
        "usage": values.get("usage") or no_usage(),
        "artifacts": [],
    }


_OF_THE_PLAN_AROUND = ("step_start", "step_end", "plan", "plan_change")
"""Events that a step's graph sends of the plan that the step is of."""
Namespace = Sequence[str]


class StepEventTagger:
    """Maps graph namespaces to plan steps; each step's `step_start` event comes first."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, ...], str] = {}

    def event(self, namespace: Namespace, streamed: Any) -> dict[str, Any] | None:
        """Return an event, with `plan_step` if it is of a step; None if it is not one of ours.

        A user's tool may write anything to the stream.
        """
        if not isinstance(streamed, Mapping):
            return None
        event = cast("Mapping[str, Any]", streamed)
        if event.get("type") not in GRAPH_EVENTS or (namespace and event["type"] == "limit"):
            return None  # a plan's step may end at a limit of its own
        place = tuple(namespace)
        subagent = tuple(str(event.get("namespace") or "").split("|"))  # of its graph
        if event["type"] == "step_start":
            self._steps[subagent if subagent[0] else place] = str(event["id"])
        if event["type"] in _OF_THE_PLAN_AROUND and not subagent[0]:
            place = place[:-1]
        return {**self._step_at(place), **event}

    def of_task(self, task: PregelTask) -> dict[str, str]:
        """Return `plan_step` for a question of a task, if it is a step."""
        return self._step_at((f"{task.name}:{task.id}",))

    def _step_at(self, place: tuple[str, ...]) -> dict[str, str]:
        around = (place[:length] for length in range(1, len(place) + 1))
        steps = [self._steps[outer] for outer in around if outer in self._steps]
        return {"plan_step": "/".join(steps)} if steps else {}


def step_line(event: Mapping[str, Any]) -> str:
    """Return a sentence about a `step_start` or `step_end` event: a plan step's or a subagent's."""
    what = "Subagent" if event.get("namespace") else "Plan step"
    return f"{what} {event['id']}: {event['status']}."


def model_label(settings: Settings) -> str:
    """Return the name of a run's model for its `run_start` event: its spec, or its class."""
    model = settings.main.model
    return model if isinstance(model, str) else type(model).__name__
