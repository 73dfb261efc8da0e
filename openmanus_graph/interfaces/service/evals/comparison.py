"""Compares two evaluations task by task."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from openmanus_graph.interfaces.service.evals.evaluation import Evaluation, TaskFigures

ChangeKind: TypeAlias = Literal[
    "now fails", "worse", "now passes", "better", "same", "unknown", "new", "gone"
]
REGRESSIONS = frozenset({"now fails", "worse", "unknown"})
"""What makes a comparison end with 1."""


@dataclass(frozen=True)
class Change:
    """How one task differs between two evaluations."""

    id: str
    kind: ChangeKind
    before: TaskFigures | None
    after: TaskFigures | None
    other_checks: bool
    """Whether the task or its checks were others then."""

    def difference(self, figure: Literal["cost_usd", "steps", "elapsed_s"]) -> float | None:
        """Return by how much a mean has grown; None if one of the two is unknown."""
        before = getattr(self.before, figure, None)
        after = getattr(self.after, figure, None)
        return None if before is None or after is None else after - before


def compare(before: Evaluation, after: Evaluation) -> Sequence[Change]:
    """Return the changes, regressions first, then in the order of the suite."""
    earlier = {task.id: task for task in before.tasks}
    later = {task.id: task for task in after.tasks}
    changes = [_change(name, earlier.get(name), later.get(name)) for name in later | earlier]
    return sorted(changes, key=lambda one: one.kind not in REGRESSIONS)


def _change(name: str, before: TaskFigures | None, after: TaskFigures | None) -> Change:
    digests = [
        {verdict.digest for _, verdict in figures.attempts} if figures else set[str]()
        for figures in (before, after)
    ]
    others = bool(digests[0] and digests[1]) and digests[0] != digests[1]
    return Change(name, _kind(before, after), before, after, others)


def _kind(before: TaskFigures | None, after: TaskFigures | None) -> ChangeKind:
    if after is None:
        return "gone"
    if before is None or before.rate is None:
        return "new"
    if after.rate is None:
        return "unknown"
    if after.rate == before.rate:
        return "same"
    if after.rate < before.rate:
        return "now fails" if after.rate == 0 else "worse"
    return "now passes" if before.rate == 0 else "better"
