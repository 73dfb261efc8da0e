"""For all that stream a graph: its recursion limit, its events with their plan step, its model."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from langgraph.types import PregelTask

from openmanus_graph.runtime.events import GRAPH_EVENTS
from openmanus_graph.state.settings import Settings

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
        helper = tuple(str(event.get("namespace") or "").split("|"))  # of its graph
        if event["type"] == "step_start":
            self._steps[helper if helper[0] else place] = str(event["id"])
        if event["type"] in _OF_THE_PLAN_AROUND and not helper[0]:
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
    """Return a sentence about a `step_start` or `step_end` event: of a plan's step, or a helper."""
    what = "Helper" if event.get("namespace") else "Plan step"
    return f"{what} {event['id']}: {event['status']}."


def model_label(settings: Settings) -> str:
    """Return the name of a run's model for its `run_start` event: its spec, or its class."""
    model = settings.main.model
    return model if isinstance(model, str) else type(model).__name__
