"""Which step of a plan an event comes from."""

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.types import PregelTask

Namespace = Sequence[str]


class Sources:
    """Knows the steps by the places in the graph where they run: `step_start` comes first."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, ...], str] = {}

    def of(self, namespace: Namespace, event: Mapping[str, Any]) -> dict[str, str]:
        """Return `plan_step` for an event of a step, nothing for one of the run itself."""
        place = tuple(namespace)
        if event["type"] == "step_start":
            self._steps[place] = str(event["id"])
        if event["type"] in ("step_start", "step_end"):  # it is of the plan around the step
            place = place[:-1]
        return self._at(place)

    def of_task(self, task: PregelTask) -> dict[str, str]:
        """Return `plan_step` for a question of a task, if it is a step."""
        return self._at((f"{task.name}:{task.id}",))

    def _at(self, place: tuple[str, ...]) -> dict[str, str]:
        around = (place[:length] for length in range(1, len(place) + 1))
        steps = [self._steps[outer] for outer in around if outer in self._steps]
        return {"plan_step": "/".join(steps)} if steps else {}
