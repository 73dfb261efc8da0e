"""The events of a run, as all interfaces show them: its steps, its end, a conversation again."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.types import PregelTask, StateSnapshot

from openmanus_graph.backends.persistence.checkpointer import Checkpointer
from openmanus_graph.backends.persistence.checkpoints import EmbeddedAgents, read_embedded_agents
from openmanus_graph.backends.persistence.recording import Recording
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.conversation.history import is_steering, last_text
from openmanus_graph.graphs.catalog import is_ours
from openmanus_graph.runtime.events import GRAPH_EVENTS, interrupt_event
from openmanus_graph.state.manus import Usage, add_usage, no_claims, no_usage
from openmanus_graph.state.settings import Settings

NO_RESULT = (
    "The run ended without a result: what it ran in was stopped. Resume the thread, or look into "
    "the log."
)
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
    """Return the `final` event of a run that came to an end or was cut off.

    Args:
        usage: The run's usage, if the state does not hold all of it.
        agents: Those inside a third-party graph, whose own state does not say how they ended.
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
        "claims": values.get("claims") or no_claims(),
        "structured": values.get("structured"),
        "usage": usage or values.get("usage") or no_usage(),
        "artifacts": values.get("artifacts") or [],
    }


def _third_party_outcome(
    last: str, agents: EmbeddedAgents | None
) -> tuple[str | None, str | None, str]:
    inner = agents.unfinished if agents else None
    if inner is None:
        return ("finished", "answer", last) if last else (None, None, "")
    why = str(inner.get("answer") or "")
    answer = last if why in last else "\n\n".join(filter(None, (last, why)))
    return inner["status"], inner.get("stop_reason"), answer


def failed_event(sentence: str, values: Mapping[str, Any]) -> dict[str, Any]:
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


def cancelled_event(sentence: str) -> dict[str, Any]:
    """Return the `final` event of a run that was cancelled and left no state to read."""
    return failed_event(sentence, {}) | {"status": "cancelled", "stop_reason": "cancelled"}


def recursion_event(agent: str, usage: Usage) -> dict[str, Any]:
    sentence = (
        f"The graph of {agent} reached its recursion limit without an end. Give it a way to end, "
        "or a higher recursion_limit; a resumed run continues where it stopped."
    )
    ended = {"status": "stopped", "stop_reason": "max_steps"}
    return failed_event(sentence, {"usage": usage}) | ended


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
        return {**self._step_at(place), **event}

    def of_task(self, task: PregelTask) -> dict[str, str]:
        """Return `plan_step` for a question of a task, if the task is a step."""
        return self._step_at((f"{task.name}:{task.id}",))

    def _step_at(self, place: tuple[str, ...]) -> dict[str, str]:
        around = (place[:length] for length in range(1, len(place) + 1))
        steps = [self._steps[outer] for outer in around if outer in self._steps]
        return {"plan_step": "/".join(steps)} if steps else {}


def events_from_messages(
    thread: Thread | Recording, messages: Iterable[AnyMessage]
) -> Iterator[dict[str, Any]]:
    """Yield the events of a conversation again."""
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
            yield {"type": "think_end", **reply, "usage": no_usage(), "seconds": 0.0}
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
